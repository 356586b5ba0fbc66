/* What a handle holds; for this folder only. */
#ifndef SPANLITE_ENACT_INSIDE_H
#define SPANLITE_ENACT_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"
#include "enact.h"

enum {
  CELLS = 1 << 16,   /* launches whose starts the GPU keeps */
  ROWS = 1 << 16,    /* kernels taken and not launched */
  LANES = 4,         /* kernels of one queue that may run at a time, where they did so */
  MOST_QUEUES = 128,
  MOST_QUEUED = 512, /* launches that have not begun: a stream takes about 1,000 before a launch waits */
  TRAIN_SIZES = 6,   /* trains of 2, 4, … 64 kernels */
  LONGEST_TRAIN = 1 << TRAIN_SIZES,
  TRAINS = 8,        /* of each size, for streams that run some at a time */
  TAG_BITS = 24,
  TIME_BITS = 40,    /* of the GPU's timer that a cell holds: 18 minutes */
};

struct row {
  int64_t due_ns, duration_ns;
  int32_t queue, launch;
};

struct lane {
  CUstream stream;
  int64_t end_ns;       /* when what was launched will have ended */
  int64_t asked_end_ns; /* when it would have, had it begun when due */
};

struct queue {
  int32_t priority, lanes;
  struct lane lane[LANES];
};

/* A chain of kernels that is launched at once. */
struct train {
  CUstream stream; /* in which it was launched last */
  int64_t end_ns;  /* and will have ended */
  CUgraphExec made;
  CUgraphNode nodes[LONGEST_TRAIN];
};

struct enactor {
  struct cuda cuda;
  void *library;
  CUdevice device;
  CUcontext context;
  char name[128];
  int driver, processors;
  pthread_mutex_t mutex; /* of `error`, `late_ns` and `late_count` */
  char error[512], told[512];

  CUfunction *functions;
  int64_t function_count;
  struct launch *launches;
  int64_t *floors_ns, *train_floors_ns; /* what a launch's duration has beyond being busy, by itself and in a train */
  int64_t *least_ns;                    /* its shortest duration */
  int64_t launch_count;
  struct queue *queues;
  int64_t queue_count;
  struct calibration calibration;
  struct train *trains; /* TRAINS of each size */
  int next_train[TRAIN_SIZES];

  CUdeviceptr cells, stop_word; /* on the GPU */
  CUstream aside;               /* for copies */
  uint32_t *box;                /* pinned, the GPU writes there: see calibrate.c */
  CUdeviceptr box_there;
  uint64_t *copied;             /* cells as last copied, pinned */

  pthread_t player;             /* all below is its own, but for what is atomic or has the mutex */
  bool plays;
  int64_t origin_ns, ahead_ns, clock_offset_ns;
  int64_t soonest_ns[2]; /* shortest from a launch to its start, when that was measured: of a kernel, of a train */
  struct row *rows;
  atomic_long fed, launched, started; /* kernels since the handle was opened */
  long first;                         /* of them, those of the calibration */
  long begun;                         /* launches that should have begun by now */
  int64_t *due_ns, *start_ns; /* by launch % CELLS: asked for; when it should begin */
  int64_t *called_ns;         /* likewise: when it was launched if the GPU was idle, below 0 if with a train; else 0 */
  atomic_long in_trains;
  bool copying;
  long copied_to;         /* launches that there were when the copy began */
  int64_t copy_asked_ns;
  int64_t *late_ns, late_count; /* read and not told of */
  atomic_long settled; /* kernels of which all were read and have ended */
  int64_t followed_ns; /* when the clock was followed last */
  atomic_bool stopping, ending, broken;
};

int64_t host_ns(void);
void nap(int64_t ns);
/* -1, and what failed for the reader. */
int64_t failed(struct enactor *, const char *what, CUresult);
int64_t refused(struct enactor *, const char *why);
/* Launches a busy kernel, which writes when it begins into the cell of its number. */
int64_t busy(struct enactor *, const struct launch *, CUstream, int64_t duration_ns, long number);
/* The parameters of a busy kernel; their pointers are into it. */
struct busy_parameters {
  uint64_t duration, tag;
  CUdeviceptr cell, stop;
  void *pointers[4];
};
void busy_parameters(struct enactor *, int64_t duration_ns, long number, struct busy_parameters *);
int64_t make_trains(struct enactor *, const struct launch *any);
/* A train of so many kernels, 2, 4, …, that waits for none of another stream, or NULL; kernels are put in one by one,
   numbered on from the first. */
struct train *take_train(struct enactor *, int count, CUstream stream);
int64_t put_in(struct enactor *, struct train *, int place, const struct launch *, int64_t duration_ns, long number);
/* The start of a launch as its cell tells; false if the cell is not that launch's. */
bool cell_start(uint64_t cell, long number, int64_t near_ns, int64_t *start_ns);
int64_t new_lane(struct enactor *, struct queue *);
/* Reads when kernels began: now and then, or at once. */
int64_t read_starts(struct enactor *, bool at_once);
void *play(void *enactor);

#define TRY(enactor, what, call)                                        \
  do {                                                                  \
    CUresult result_ = (enactor)->cuda.call;                            \
    if (result_ != CUDA_SUCCESS) return failed(enactor, what, result_); \
  } while (0)

#endif
