/* Reads when kernels began: each writes the GPU's time into a cell, and the cells are copied now and then. */
#include <string.h>

#include "inside.h"

enum {
  COPY_EVERY_NS = 100000000,
  COPY_TAKES_NS = 200000,
  LEAST_SEEN = 16,
  DRIFTS = 5000, /* timers gain one part in so many at most */
};

/* What a copy says of launches that nothing kept: of kernels, of trains. */
struct seen {
  int64_t all, count, sum_ns, soonest_ns; /* count, sum_ns: of those that something else did not keep */
};

static void see(struct seen *seen, int64_t took_ns, int64_t usual_ns) {
  seen->all++;
  if (took_ns < seen->soonest_ns) seen->soonest_ns = took_ns;
  if (took_ns > 3 * usual_ns) return; /* something did keep it */
  seen->count++;
  seen->sum_ns += took_ns;
}

/* The GPU's timer and the host's clock drift apart. A launch that nothing keeps begins no sooner than it did when that was
   measured: the one that was soonest tells where the timer stands. That all were late may be so because they were, hence
   the timer is taken to gain no more than timers do. How long launches take changes with what else the host does. */
static void follow(struct enactor *enactor, const struct seen *seen, int64_t soonest_ns, int64_t *usual_ns, bool clock) {
  if (seen->all < LEAST_SEEN) return;
  const int64_t most_ns = (enactor->copy_asked_ns - enactor->followed_ns) / DRIFTS;
  const int64_t off_ns = (seen->soonest_ns - soonest_ns) / 2;
  const int64_t drift_ns = off_ns < most_ns ? off_ns : most_ns;
  if (seen->count >= LEAST_SEEN) *usual_ns += (seen->sum_ns / seen->count - drift_ns - *usual_ns) / 4;
  if (!clock) return;
  enactor->clock_offset_ns += drift_ns;
  enactor->followed_ns = enactor->copy_asked_ns;
}

static void take_cells(struct enactor *enactor) {
  struct seen kernels = {.soonest_ns = INT64_MAX}, trains = {.soonest_ns = INT64_MAX};
  struct calibration *found = &enactor->calibration;
  int64_t start_ns;
  long number = atomic_load(&enactor->started);
  pthread_mutex_lock(&enactor->mutex);
  for (; number < enactor->copied_to && enactor->late_count < CELLS; number++) {
    const int64_t at = number % CELLS, due_ns = enactor->due_ns[at], called_ns = enactor->called_ns[at];
    if (!cell_start(enactor->copied[at], number, due_ns + enactor->clock_offset_ns, &start_ns)) break;
    start_ns -= enactor->clock_offset_ns;
    enactor->late_ns[enactor->late_count++] = start_ns - due_ns;
    if (called_ns > 0) see(&kernels, start_ns - called_ns, found->launch_ns);
    if (called_ns < 0) see(&trains, start_ns + called_ns, found->train_launch_ns);
  }
  pthread_mutex_unlock(&enactor->mutex);
  const bool by_kernels = kernels.all >= LEAST_SEEN;
  follow(enactor, &kernels, enactor->soonest_ns[0], &found->launch_ns, by_kernels);
  follow(enactor, &trains, enactor->soonest_ns[1], &found->train_launch_ns, !by_kernels);
  atomic_store(&enactor->started, number);
}

int64_t read_starts(struct enactor *enactor, bool at_once) {
  const int64_t now_ns = host_ns(), since_ns = now_ns - enactor->copy_asked_ns;
  if (enactor->copying) {
    if (since_ns < COPY_TAKES_NS) return 0;
    CUresult result = enactor->cuda.stream_query(enactor->aside);
    if (result == CUDA_ERROR_NOT_READY) return 0;
    if (result != CUDA_SUCCESS) return failed(enactor, "a kernel", result);
    enactor->copying = false;
    take_cells(enactor);
  }
  const long launched = atomic_load(&enactor->launched);
  if (launched == atomic_load(&enactor->started) || (!at_once && since_ns < COPY_EVERY_NS)) return 0;
  TRY(enactor, "cuMemcpyDtoHAsync", to_host(enactor->copied, enactor->cells, CELLS * sizeof(uint64_t), enactor->aside));
  enactor->copying = true;
  enactor->copied_to = launched;
  enactor->copy_asked_ns = now_ns;
  return 0;
}

int64_t spanlite_enact_started(struct enactor *enactor, int64_t most, int64_t *late_ns) {
  pthread_mutex_lock(&enactor->mutex);
  const int64_t told = enactor->late_count < most ? enactor->late_count : most;
  memcpy(late_ns, enactor->late_ns, (size_t)told * sizeof *late_ns);
  memmove(enactor->late_ns, enactor->late_ns + told, (size_t)(enactor->late_count - told) * sizeof *late_ns);
  enactor->late_count -= told;
  pthread_mutex_unlock(&enactor->mutex);
  return told;
}
