/* What the two halves of the imitation of libcuda share: mock_cuda.c has the functions, mock_stream.c the streams.

   Times of a stream follow from each other, not from when its thread ran: what lay ready starts a fixed time after what was
   before it, however late the machine gave the thread a processor. So chains are exact, and noise makes only
   launches late, nothing early.

   Settings are read from the environment each time that a context is made; times in nanoseconds, best a multiple of 32:
       MOCK_FLOOR   what a kernel lasts beyond its duration
       MOCK_WAVE    more of that for each time that its blocks fill the multiprocessors anew
       MOCK_GAP     from a kernel's end to the next one's start
       MOCK_LAUNCH  from a launch to the start, at the least
       MOCK_TRAIN_LAUNCH, MOCK_TRAIN_GAP  the same of a graph, and from kernel to kernel in it
       MOCK_OFFSET  GPU's timer less CLOCK_MONOTONIC at the start
       MOCK_DRIFT   what it gains from then on, parts per million
       MOCK_LOG     file for the log, `struct record` after `struct record`, written when the context ends
       MOCK_DEVICES how many there are
       MOCK_INIT    what cuInit returns
   and while it runs by `mock_set`:
       slow         a kernel's duration in thousandths of what is asked
       refused      launches that go well from now on; later ones are refused
       faulty       kernels that go well from now on; the next one faults */
#ifndef MOCK_CUDA_H
#define MOCK_CUDA_H

#include <pthread.h>
#include <stdbool.h>

#include "cuda_abi.h"

enum {
  QUEUED = 1024, /* operations that a stream takes before it blocks who launches */
  MOST_STREAMS = 1024,
  TICK = 32, /* of the GPU's timer, ns */
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
};

struct CUfunc_st {
  char name[64];
  int registers, static_shared, dynamic_shared; /* the latter: the most that was allowed */
};

/* A busy kernel as it is launched. */
struct call {
  CUfunction function;
  unsigned grid[3], block[3], dynamic_shared;
  uint64_t duration, tag;
  int64_t floor;
  uint64_t *cell;
  const uint32_t *stop;
};

/* A chain of kernels; one launch of it waits for the one before, in whatever stream. */
struct CUgraphExec_st {
  long put, done; /* launches; the latter is atomic */
  int64_t free_ns;
  int count;
  struct call calls[];
};

struct CUgraphNode_st {
  int place;
  struct call call;
};

struct CUgraph_st {
  int count;
  struct CUgraphNode_st *nodes[64];
};

struct operation {
  enum { KERNEL, TRAIN, ECHO, COPY_IN, COPY_OUT } kind;
  int64_t queued_ns;
  struct call call;   /* KERNEL */
  struct call *calls; /* TRAIN */
  int count;
  CUgraphExec train;
  long turn;
  uint32_t *box; /* ECHO */
  uint32_t rounds;
  void *to;
  const void *from;
  size_t size;
  unsigned char held[64]; /* what little is copied to the device */
};

struct record {
  char name[64];
  int32_t stream, priority;
  uint32_t grid[3], block[3], dynamic_shared;
  uint32_t place; /* in a graph from 1 on; else 0 */
  int64_t tag, duration;
  int64_t queued, start, end;  /* host's time */
  int64_t gpu_start, gpu_end;
};

struct CUstream_st {
  int number, priority;
  pthread_t worker;
  pthread_mutex_t lock;
  pthread_cond_t work, room; /* room: an operation ended */
  struct operation operations[QUEUED];
  long put, done;
  bool ending;
  /* the worker's own */
  int64_t free_ns; /* end of the last operation */
  struct record *records;
  size_t count, room_for;
};

struct settings {
  int64_t floor, wave, gap, launch, train_launch, train_gap, offset, drift, devices;
  int64_t from_ns;               /* when the timer was as far off as `offset` */
  int64_t slow, refused, faulty; /* atomic; the latter two are counted down */
};

extern struct settings mock;
extern int mock_error; /* sticky, atomic */

int64_t mock_host_ns(void);
struct CUstream_st *mock_stream(int number, int priority);
CUresult mock_put(struct CUstream_st *, const struct operation *);
bool mock_idle(struct CUstream_st *);
void mock_finish(struct CUstream_st *);
/* Drops what is queued, and ends the thread; its log is left. */
void mock_end(struct CUstream_st *);

#endif
