/* Hardware counters of whole GPUs by CUPTI's PM sampling: the library that the node agent loads.
 *
 * It needs no CUDA context and no program of its own on the GPU: counters are of the device, whoever uses it. One client
 * of a device's counters exists at a time, so Nsight, DCGM's profiling fields and this library exclude each other.
 *
 * Every function returns 0, a CUptiResult (above 0), or a number of its own (below 0: -1 library, -2 CUDA, -3 argument,
 * -4 the metrics need several passes, -5 memory), with a text in `error`. A handle belongs to one thread at a time. */
#ifndef SPANLITE_COUNTERS_H
#define SPANLITE_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#define SPANLITE_PUBLIC __attribute__((visibility("default")))

struct spanlite_counters;

/* What is known of a device before anything is enabled on it. Levels: 0 not known, 1 no, 2 switched off, 3 yes. */
struct spanlite_counters_device {
  char uuid[48]; /* GPU-… as nvidia-smi writes it */
  char chip[32]; /* GH100 */
  int32_t supported, architecture, sli, vgpu, confidential, cmp, wsl;
  int32_t permission; /* CUptiResult of asking which counters there are: 35 forbidden, 26 another client has them */
};

/* What one call of decode did. */
struct spanlite_counters_decoded {
  uint64_t samples;
  uint64_t unfinished;  /* begun in the hardware buffer, not whole yet */
  uint64_t decode_ns, evaluate_ns, reset_ns;
  int32_t overflow;     /* the hardware buffer was full; samples are missing from here on */
  int32_t more;         /* the image was full before the hardware buffer was empty: decode again at once */
};

/* Loads libcupti (`cupti`: its path, or NULL to search) and libcuda; tells their versions. */
SPANLITE_PUBLIC int spanlite_counters_load(const char *cupti, uint32_t *cupti_version, int32_t *driver_version,
                                           int32_t *devices, char *error, size_t error_size);

/* Tells what is possible on a device, by its number as CUDA counts. */
SPANLITE_PUBLIC int spanlite_counters_probe(int32_t device, struct spanlite_counters_device *about, char *error,
                                            size_t error_size);

/* How many passes these metrics need on a device; sampling takes one. */
SPANLITE_PUBLIC int spanlite_counters_passes(int32_t device, const char **metrics, size_t count, size_t *passes,
                                             char *error, size_t error_size);

/* Begins to sample. `interval` is in nanoseconds, or in cycles of the system clock where `cycles` is not 0 (GA100 and
 * Turing know no other). At most `capacity` samples come of one decode. */
SPANLITE_PUBLIC int spanlite_counters_open(int32_t device, const char **metrics, size_t count, uint64_t interval,
                                           int32_t cycles, size_t hardware_bytes, uint32_t capacity,
                                           struct spanlite_counters **opened, char *error, size_t error_size);

/* Takes what has been sampled since: times in Unix ns, and `values[sample * metrics + metric]`, room for `capacity`. */
SPANLITE_PUBLIC int spanlite_counters_decode(struct spanlite_counters *opened, size_t capacity, uint64_t *starts,
                                             uint64_t *ends, double *values, struct spanlite_counters_decoded *what,
                                             char *error, size_t error_size);

/* Ends sampling and frees the handle, whatever CUPTI says; the first thing that went wrong is told. */
SPANLITE_PUBLIC int spanlite_counters_close(struct spanlite_counters *opened, char *error, size_t error_size);

#endif
