/* Measures the GPU: how its timer relates to the host's clock, how long a launch takes, and what each kernel's duration has
   beyond the time that it is busy. */
#include <stdlib.h>
#include <string.h>

#include "inside.h"

enum { ECHOES = 64, ROUNDS = 33, TIMEOUT_NS = 2000000000, BUSY_NS = 20000, PAUSE_NS = 50000 };
enum { ASK = 0, ANSWER = 2, DONE = 4 }; /* words of the box that host and kernel share */

static int ascending(const void *left, const void *right) {
  const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return a < b ? -1 : a > b;
}

static int64_t median(int64_t *values, int64_t count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

/* The mean of the middle half: finer than the timer's steps, and nothing to those who were kept. */
static int64_t middle(int64_t *values, int64_t count) {
  int64_t sum = 0;
  qsort(values, (size_t)count, sizeof *values, ascending);
  for (int64_t at = count / 4; at < count - count / 4; at++) sum += values[at];
  return sum / (count - 2 * (count / 4));
}

/* Asks a kernel for the time again and again; the quickest answer was read half its time ago, give or take that half. */
static int64_t relate_clocks(struct enactor *enactor, CUfunction echo, CUstream stream) {
  uint32_t *words = enactor->box, rounds = ECHOES;
  void *parameters[] = {&enactor->box_there, &rounds};
  struct calibration *found = &enactor->calibration;
  uint64_t first = 0, varying = 0;
  TRY(enactor, "the clock's kernel", launch(echo, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
  found->clock_uncertainty_ns = INT64_MAX;
  for (uint32_t round = 1; round <= ECHOES; round++) {
    const int64_t asked_ns = host_ns();
    __atomic_store_n(&words[ASK], round, __ATOMIC_RELEASE);
    while (__atomic_load_n(&words[DONE], __ATOMIC_ACQUIRE) != round)
      if (host_ns() - asked_ns > TIMEOUT_NS) return refused(enactor, "the GPU did not answer within 2 s: is it busy?");
    const int64_t took_ns = host_ns() - asked_ns;
    const uint64_t said = __atomic_load_n((uint64_t *)&words[ANSWER], __ATOMIC_RELAXED);
    if (round == 1) first = said;
    varying |= said - first;
    if ((took_ns + 1) / 2 >= found->clock_uncertainty_ns) continue;
    found->clock_uncertainty_ns = (took_ns + 1) / 2;
    found->clock_offset_ns = (int64_t)said - (asked_ns + took_ns / 2);
  }
  found->clock_step_ns = varying ? 1LL << __builtin_ctzll(varying) : 1LL << 62;
  TRY(enactor, "the clock's kernel", stream_synchronize(stream));
  return 0;
}

/* Starts of the last `count` launches, by the GPU's timer. */
static int64_t read_cells(struct enactor *enactor, long count, int64_t *starts) {
  TRY(enactor, "cuMemcpyDtoHAsync", to_host(enactor->copied, enactor->cells, CELLS * sizeof(uint64_t), enactor->aside));
  TRY(enactor, "cuMemcpyDtoHAsync", stream_synchronize(enactor->aside));
  const int64_t near_ns = host_ns() + enactor->calibration.clock_offset_ns;
  for (long at = 0; at < count; at++) {
    const long number = enactor->launched - count + at;
    if (!cell_start(enactor->copied[number % CELLS], number, near_ns, &starts[at]))
      return refused(enactor, "a kernel that ended did not say when it began");
  }
  return 0;
}

/* The time from start to start of kernels that lie ready one behind the other, less that for which they are busy. */
static int64_t measure_period(struct enactor *enactor, const struct launch *launch, CUstream stream, int64_t *period_ns) {
  int64_t starts[ROUNDS];
  for (long at = 0; at < ROUNDS; at++) {
    if (busy(enactor, launch, stream, BUSY_NS, enactor->launched) < 0) return -1;
    enactor->launched++;
  }
  TRY(enactor, "a kernel", stream_synchronize(stream));
  if (read_cells(enactor, ROUNDS, starts) < 0) return -1;
  for (long at = 0; at + 1 < ROUNDS; at++) starts[at] = starts[at + 1] - starts[at] - BUSY_NS;
  *period_ns = middle(starts, ROUNDS - 1);
  return 0;
}

/* The median time, and the shortest, from the call that launches a kernel, or a train, on an idle GPU to its start. */
static int64_t measure_launch(struct enactor *enactor, const struct launch *launch, CUstream stream, bool in_train,
                              int64_t *launch_ns, int64_t *soonest_ns) {
  int64_t took[ECHOES], called_ns, start_ns[2];
  for (long at = 0; at < ECHOES; at++) {
    const long number = enactor->launched, count = in_train ? 2 : 1;
    struct train *train = in_train ? take_train(enactor, 2, stream) : NULL;
    for (int place = 0; in_train && place < 2; place++)
      if (put_in(enactor, train, place, launch, 0, number + place) < 0) return -1;
    for (int64_t until_ns = host_ns() + PAUSE_NS; host_ns() < until_ns;) {}
    called_ns = host_ns();
    if (in_train) TRY(enactor, "cuGraphLaunch", graph_launch(train->made, stream));
    if (!in_train && busy(enactor, launch, stream, 0, number) < 0) return -1;
    enactor->launched += count;
    TRY(enactor, "a kernel", stream_synchronize(stream));
    if (read_cells(enactor, count, start_ns) < 0) return -1;
    took[at] = start_ns[0] - enactor->calibration.clock_offset_ns - called_ns;
  }
  *launch_ns = median(took, ECHOES);
  *soonest_ns = took[0];
  return 0;
}

/* The time between the starts of a train's kernels, less that for which they are busy. */
static int64_t measure_train(struct enactor *enactor, const struct launch *launch, CUstream stream, int64_t busy_ns,
                             int64_t *period_ns) {
  int64_t starts[LONGEST_TRAIN];
  struct train *train = take_train(enactor, LONGEST_TRAIN, stream);
  for (int at = 0; at < LONGEST_TRAIN; at++)
    if (put_in(enactor, train, at, launch, busy_ns, enactor->launched + at) < 0) return -1;
  enactor->launched += LONGEST_TRAIN;
  TRY(enactor, "cuGraphLaunch", graph_launch(train->made, stream));
  TRY(enactor, "a kernel", stream_synchronize(stream));
  if (read_cells(enactor, LONGEST_TRAIN, starts) < 0) return -1;
  for (long at = 0; at + 1 < LONGEST_TRAIN; at++) starts[at] = starts[at + 1] - starts[at] - busy_ns;
  *period_ns = middle(starts, LONGEST_TRAIN - 1);
  return 0;
}

static int64_t or_0(int64_t ns) { return ns > 0 ? ns : 0; }

static int64_t measure_shape(struct enactor *enactor, int64_t at, CUstream stream) {
  const struct calibration *found = &enactor->calibration;
  const struct launch *launch = &enactor->launches[at];
  int64_t alone_ns = 0, train_ns = 0, idle_ns = 0;
  if (measure_period(enactor, launch, stream, &alone_ns) < 0 ||
      measure_train(enactor, launch, stream, BUSY_NS, &train_ns) < 0 ||
      measure_train(enactor, launch, stream, 0, &idle_ns) < 0)
    return -1;
  enactor->floors_ns[at] = or_0(alone_ns - found->gap_ns);
  enactor->train_floors_ns[at] = or_0(train_ns - found->train_gap_ns);
  enactor->least_ns[at] = or_0(idle_ns - found->train_gap_ns);
  if (enactor->least_ns[at] < enactor->floors_ns[at]) enactor->least_ns[at] = enactor->floors_ns[at];
  return 0;
}

/* Between two starts lie what a kernel's duration has beyond being busy, and the gap. From inside they cannot be told apart;
   of a small kernel each is half, within 40 ns on an H200 by CUPTI's records, and the gap is the same for all kernels. */
int64_t spanlite_enact_calibrate(struct enactor *enactor, int32_t function, int32_t echo, struct calibration *out,
                                 int64_t *floors_ns, int64_t *least_ns) {
  const struct launch small = {.function = function, .grid = {(uint32_t)enactor->processors, 1, 1}, .block = {128, 1, 1}};
  struct calibration *found = &enactor->calibration;
  struct queue queue = {0};
  int64_t period_ns = 0, train_ns = 0;
  if (enactor->trains) return refused(enactor, "calibrated once");
  if (new_lane(enactor, &queue) < 0 || make_trains(enactor, &small) < 0) return -1;
  CUstream stream = queue.lane[0].stream;
  if (measure_period(enactor, &small, stream, &period_ns) < 0) return -1; /* and warms up */
  if (relate_clocks(enactor, enactor->functions[echo], stream) < 0) return -1;
  if (measure_period(enactor, &small, stream, &period_ns) < 0 ||
      measure_train(enactor, &small, stream, BUSY_NS, &train_ns) < 0 ||
      measure_launch(enactor, &small, stream, false, &found->launch_ns, &enactor->soonest_ns[0]) < 0 ||
      measure_launch(enactor, &small, stream, true, &found->train_launch_ns, &enactor->soonest_ns[1]) < 0)
    return -1;
  found->gap_ns = period_ns / 2;
  found->train_gap_ns = train_ns - (period_ns - found->gap_ns);
  for (int64_t at = 0; at < enactor->launch_count; at++)
    if (measure_shape(enactor, at, stream) < 0) return -1;
  if (enactor->launch_count) {
    memcpy(floors_ns, enactor->floors_ns, (size_t)enactor->launch_count * sizeof *floors_ns);
    memcpy(least_ns, enactor->least_ns, (size_t)enactor->launch_count * sizeof *least_ns);
  }
  *out = *found;
  return 0;
}
