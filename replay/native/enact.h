/* Re-enacts a timeline of kernels on a GPU: busy kernels of the same names, shapes, durations, streams and gaps.

   One handle is for one GPU. Its functions are called by one thread. Times are of CLOCK_MONOTONIC in nanoseconds. A
   function that fails returns -1; `spanlite_enact_error` tells why. */
#ifndef SPANLITE_ENACT_H
#define SPANLITE_ENACT_H

#include <stdint.h>

#define SPANLITE_ENACT_REVISION 6
#define EXPORT __attribute__((visibility("default")))

struct enactor;

/* A launch: an index of a function, and its shape. */
struct launch {
  int32_t function;
  uint32_t grid[3], block[3], dynamic_shared;
};

/* What was measured of the GPU: see calibrate.c. */
struct calibration {
  int64_t clock_offset_ns;      /* of the GPU's timer less the host's clock, as they were then */
  int64_t clock_uncertainty_ns; /* of it */
  int64_t clock_step_ns;        /* of the GPU's timer */
  int64_t launch_ns;            /* from the call that launches a kernel to its start on an idle GPU */
  int64_t gap_ns;               /* between kernels that are queued one behind the other */
  int64_t train_launch_ns;      /* from the call that launches a train to the start of its first kernel */
  int64_t train_gap_ns;         /* between kernels of a train */
};

/* Where a run stands, in kernels. */
struct progress {
  int64_t fed, launched, started; /* taken by `feed`, handed to CUDA, seen to have begun */
  int64_t in_trains;              /* of those launched */
};

EXPORT int64_t spanlite_enact_revision(void);
EXPORT struct enactor *spanlite_enact_open(const char *libcuda, int device, char *why, int64_t size);
EXPORT const char *spanlite_enact_error(struct enactor *);
EXPORT const char *spanlite_enact_gpu(const struct enactor *, int32_t *processors, int32_t *driver);
/* A function of a PTX text; its index. */
EXPORT int64_t spanlite_enact_function(struct enactor *, const char *ptx, const char *name, int32_t *registers);
/* Blocks of a launch that one multiprocessor holds at a time; 0 if it does not fit. */
EXPORT int64_t spanlite_enact_resident(struct enactor *, const struct launch *);
/* The launches that `feed` names by their index; once. */
EXPORT int64_t spanlite_enact_launches(struct enactor *, int64_t count, const struct launch *);
/* A queue of kernels that run one after the other; its index. */
EXPORT int64_t spanlite_enact_queue(struct enactor *, int32_t priority);
/* Measures the GPU, and of each launch what its duration has beyond the time that it is told to be busy, and what it is
   where it is told not to be busy at all, ns. `function` is a busy one, `echo` answers the host: see ptx.py. */
EXPORT int64_t spanlite_enact_calibrate(struct enactor *, int32_t function, int32_t echo, struct calibration *,
                                        int64_t *floors_ns, int64_t *least_ns);
/* Starts to play: time 0 of what is due, and how long before its time a kernel may be handed to CUDA. */
EXPORT int64_t spanlite_enact_begin(struct enactor *, int64_t origin_ns, int64_t ahead_ns);
/* Takes kernels in the order of their due times, as many as there is room for; how many. */
EXPORT int64_t spanlite_enact_feed(struct enactor *, int64_t count, const int64_t *due_ns, const int64_t *duration_ns,
                                   const int32_t *queue, const int32_t *launch);
/* How late kernels began that have begun and were not told of, ns, in the order of their launches; how many. */
EXPORT int64_t spanlite_enact_started(struct enactor *, int64_t most, int64_t *late_ns);
/* 1 when all that was taken has ended, 0 when it has not. */
EXPORT int64_t spanlite_enact_drained(struct enactor *);
/* Ends what runs and lets the rest pass: what was launched ends at once, what was not is left out. */
EXPORT void spanlite_enact_stop(struct enactor *);
EXPORT void spanlite_enact_progress(struct enactor *, struct progress *);
EXPORT void spanlite_enact_close(struct enactor *);

#endif
