/* The player's thread: launches each kernel so that it begins when it is due.

   On an idle GPU a kernel begins a while after the call that launches it; that while was measured, so the call comes as
   much before the kernel is due. A kernel that is due before the one in front of it will have ended is launched at
   once, and begins when that has; several that follow each other closely are launched together (trains.c). (A stream
   that waits for a word of memory could be opened in time as well, but the GPU looks at the word every 8.7 us only:
   docs/decisions/0020.) Kernels of one queue that ran at a time go to streams, lanes, of their own. */
#include <sys/prctl.h>

#include "inside.h"

enum { NAP_NS = 20000, SPIN_NS = 150000, LONGEST_NAP_NS = 10000000, OVERLAP_NS = 2000, EARLY_NS = 500, READ_NS = 60000 };

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static bool stopping(struct enactor *enactor) { return atomic_load_explicit(&enactor->stopping, memory_order_relaxed); }

/* Waits until then, or until all is to end. */
static void wait_until(struct enactor *enactor, int64_t until_ns) {
  for (;;) {
    const int64_t left_ns = until_ns - host_ns();
    if (left_ns <= 0 || stopping(enactor)) return;
    if (left_ns > 2 * SPIN_NS)
      nap(left_ns - SPIN_NS < LONGEST_NAP_NS ? left_ns - SPIN_NS : LONGEST_NAP_NS);
    else
      relax();
  }
}

/* The lane of a queue for a kernel that is due then: one in which none would still run if all were in time, else that in
   which the last one would end soonest. */
static struct lane *choose_lane(struct enactor *enactor, struct queue *queue, int64_t due_ns) {
  struct lane *best = &queue->lane[0];
  if (due_ns >= best->asked_end_ns - OVERLAP_NS) return best;
  for (int at = 1; at < queue->lanes; at++) {
    if (queue->lane[at].asked_end_ns <= due_ns) return &queue->lane[at];
    if (queue->lane[at].asked_end_ns < best->asked_end_ns) best = &queue->lane[at];
  }
  if (queue->lanes == LANES) return best;
  const int64_t made = new_lane(enactor, queue);
  return made < 0 ? NULL : &queue->lane[made];
}

/* Whether one more launch would neither have to wait in CUDA nor write over a start that was not read. */
static bool has_room(struct enactor *enactor, int64_t now_ns) {
  const long launched = atomic_load(&enactor->launched);
  while (enactor->begun < launched && enactor->start_ns[enactor->begun % CELLS] <= now_ns) enactor->begun++;
  return launched - enactor->begun < MOST_QUEUED && launched - atomic_load(&enactor->started) < CELLS / 4 * 3;
}

/* How long a kernel takes here. */
static int64_t length_of(const struct enactor *enactor, const struct row *row) {
  const int64_t least_ns = enactor->least_ns[row->launch];
  return row->duration_ns > least_ns ? row->duration_ns : least_ns;
}

/* A kernel has been launched: when it is due, begins and ends, and when it was called if nothing else kept it. */
static void note(struct enactor *enactor, struct lane *lane, const struct row *row, int64_t start_ns, int64_t called_ns) {
  const long number = atomic_load(&enactor->launched);
  lane->end_ns = start_ns + length_of(enactor, row);
  lane->asked_end_ns = enactor->origin_ns + row->due_ns + row->duration_ns;
  enactor->due_ns[number % CELLS] = enactor->origin_ns + row->due_ns;
  enactor->called_ns[number % CELLS] = called_ns;
  enactor->start_ns[number % CELLS] = start_ns;
  atomic_store(&enactor->launched, number + 1);
}

static int64_t launch_row(struct enactor *enactor, const struct row *row, struct lane *lane) {
  const struct calibration *found = &enactor->calibration;
  const int64_t due_ns = enactor->origin_ns + row->due_ns, free_ns = lane->end_ns + found->gap_ns;
  if (free_ns < due_ns) wait_until(enactor, due_ns - found->launch_ns);
  if (stopping(enactor)) return 0; /* it would begin early */
  const int64_t called_ns = host_ns(), soonest_ns = called_ns + found->launch_ns;
  const long number = atomic_load(&enactor->launched);
  const int64_t busy_ns = row->duration_ns - enactor->floors_ns[row->launch];
  if (busy(enactor, &enactor->launches[row->launch], lane->stream, busy_ns, number) < 0) return -1;
  note(enactor, lane, row, soonest_ns > free_ns ? soonest_ns : free_ns, soonest_ns > free_ns ? called_ns : 0);
  return 0;
}

/* How many kernels from the next one on follow each other in one lane as closely as those of a train do. */
static int train_length(struct enactor *enactor, const struct lane *lane, int64_t now_ns) {
  const struct calibration *found = &enactor->calibration;
  const long launched = atomic_load(&enactor->launched), known = atomic_load(&enactor->fed) - launched;
  const struct row *first = &enactor->rows[launched % ROWS];
  int64_t start_ns = enactor->origin_ns + first->due_ns, end_ns;
  if (lane->end_ns + found->gap_ns > start_ns) start_ns = lane->end_ns + found->gap_ns;
  int count = 0;
  do {
    const struct row *row = &enactor->rows[(launched + count++) % ROWS];
    end_ns = start_ns + length_of(enactor, row);
    start_ns = end_ns + found->train_gap_ns;
    if (count == LONGEST_TRAIN || count == known) break;
    const struct row *next = &enactor->rows[(launched + count) % ROWS];
    const int64_t due_ns = enactor->origin_ns + next->due_ns;
    const bool overlaps = next->due_ns < row->due_ns + row->duration_ns - OVERLAP_NS; /* goes to another lane */
    const bool too_soon = due_ns - now_ns > enactor->ahead_ns || due_ns > start_ns + EARLY_NS;
    if (next->queue != first->queue || too_soon || overlaps) break;
  } while (true);
  return 1 << (31 - __builtin_clz((unsigned)count));
}

static int64_t launch_train(struct enactor *enactor, struct lane *lane, struct train *train, int count) {
  const struct calibration *found = &enactor->calibration;
  const long launched = atomic_load(&enactor->launched);
  for (int at = 0; at < count; at++) {
    const struct row *row = &enactor->rows[(launched + at) % ROWS];
    const int64_t busy_ns = row->duration_ns - enactor->train_floors_ns[row->launch];
    if (put_in(enactor, train, at, &enactor->launches[row->launch], busy_ns, launched + at) < 0) return -1;
  }
  const int64_t due_ns = enactor->origin_ns + enactor->rows[launched % ROWS].due_ns, free_ns = lane->end_ns + found->gap_ns;
  if (free_ns < due_ns) wait_until(enactor, due_ns - found->train_launch_ns);
  if (stopping(enactor)) return 0;
  const int64_t called_ns = host_ns(), soonest_ns = called_ns + found->train_launch_ns;
  TRY(enactor, "cuGraphLaunch", graph_launch(train->made, lane->stream));
  note(enactor, lane, &enactor->rows[launched % ROWS], soonest_ns > free_ns ? soonest_ns : free_ns,
       soonest_ns > free_ns ? -called_ns : 0);
  for (int at = 1; at < count; at++)
    note(enactor, lane, &enactor->rows[(launched + at) % ROWS], lane->end_ns + found->train_gap_ns, 0);
  train->stream = lane->stream;
  train->end_ns = lane->end_ns;
  atomic_fetch_add(&enactor->in_trains, count);
  return 0;
}

static int64_t launch_next(struct enactor *enactor, int64_t now_ns) {
  const struct row *row = &enactor->rows[atomic_load(&enactor->launched) % ROWS];
  struct lane *lane = choose_lane(enactor, &enactor->queues[row->queue], enactor->origin_ns + row->due_ns);
  if (!lane) return -1;
  const int count = train_length(enactor, lane, now_ns);
  struct train *train = count > 1 ? take_train(enactor, count, lane->stream) : NULL;
  return train ? launch_train(enactor, lane, train, count) : launch_row(enactor, row, lane);
}

static int64_t end_running(struct enactor *enactor) {
  static const uint32_t one = 1;
  atomic_store(&enactor->fed, atomic_load(&enactor->launched)); /* the rest is left out */
  TRY(enactor, "cuMemcpyHtoDAsync", to_device(enactor->stop_word, &one, sizeof one, enactor->aside));
  return 0;
}

/* Whether nothing runs any more. */
static int64_t all_ended(struct enactor *enactor) {
  for (int64_t at = 0; at < enactor->queue_count; at++)
    for (int lane = 0; lane < enactor->queues[at].lanes; lane++) {
      CUresult result = enactor->cuda.stream_query(enactor->queues[at].lane[lane].stream);
      if (result == CUDA_ERROR_NOT_READY) return 0;
      if (result != CUDA_SUCCESS) return failed(enactor, "a kernel", result);
    }
  return 1;
}

/* With nothing to launch: reads all starts, and says when all has ended. */
static int64_t rest(struct enactor *enactor) {
  const int64_t ended = all_ended(enactor);
  if (ended < 0 || read_starts(enactor, ended == 1) < 0) return -1;
  const long launched = atomic_load(&enactor->launched);
  if (ended && launched == atomic_load(&enactor->started) && launched == atomic_load(&enactor->fed))
    atomic_store(&enactor->settled, launched);
  nap(NAP_NS);
  return 0;
}

static int64_t step(struct enactor *enactor, bool *told) {
  if (stopping(enactor) && !*told) {
    *told = true;
    return end_running(enactor);
  }
  const long launched = atomic_load(&enactor->launched);
  if (launched == atomic_load(&enactor->fed)) return rest(enactor);
  const struct row *row = &enactor->rows[launched % ROWS];
  const int64_t now_ns = host_ns(), due_ns = enactor->origin_ns + row->due_ns;
  if (due_ns - now_ns > READ_NS && read_starts(enactor, false) < 0) return -1;
  if (!has_room(enactor, now_ns)) {
    nap(NAP_NS);
    return read_starts(enactor, false);
  }
  if (due_ns - now_ns <= enactor->ahead_ns) return launch_next(enactor, now_ns);
  const int64_t from_ns = due_ns - enactor->ahead_ns, nap_ns = now_ns + LONGEST_NAP_NS;
  wait_until(enactor, from_ns < nap_ns ? from_ns : nap_ns);
  return 0;
}

void *play(void *argument) {
  struct enactor *enactor = argument;
  bool told = false;
  prctl(PR_SET_TIMERSLACK, 1);
  CUresult result = enactor->cuda.set_current(enactor->context);
  int64_t done = result == CUDA_SUCCESS ? 0 : failed(enactor, "cuCtxSetCurrent", result);
  while (done == 0 && !atomic_load(&enactor->ending)) done = step(enactor, &told);
  if (done < 0) atomic_store(&enactor->broken, true);
  return NULL;
}

int64_t spanlite_enact_begin(struct enactor *enactor, int64_t origin_ns, int64_t ahead_ns) {
  if (enactor->plays || !enactor->trains) return refused(enactor, "begins once, after it was calibrated");
  enactor->origin_ns = origin_ns;
  enactor->ahead_ns = ahead_ns;
  enactor->clock_offset_ns = enactor->calibration.clock_offset_ns;
  enactor->first = enactor->begun = atomic_load(&enactor->launched);
  atomic_store(&enactor->started, enactor->first);
  atomic_store(&enactor->fed, enactor->first);
  atomic_store(&enactor->settled, enactor->first);
  enactor->followed_ns = host_ns();
  if (pthread_create(&enactor->player, NULL, play, enactor)) return refused(enactor, "no thread can be started");
  enactor->plays = true;
  return 0;
}

int64_t spanlite_enact_feed(struct enactor *enactor, int64_t count, const int64_t *due_ns, const int64_t *duration_ns,
                            const int32_t *queue, const int32_t *launch) {
  if (!enactor->plays) return refused(enactor, "fed before it begins");
  if (atomic_load(&enactor->broken)) return -1;
  if (stopping(enactor)) return 0;
  for (int64_t at = 0; at < count; at++)
    if (queue[at] < 0 || queue[at] >= enactor->queue_count || launch[at] < 0 || launch[at] >= enactor->launch_count)
      return refused(enactor, "a queue or launch that was not told before");
  const long fed = atomic_load(&enactor->fed);
  const int64_t room = ROWS - (fed - atomic_load(&enactor->launched));
  const int64_t taken = count < room ? count : room;
  for (int64_t at = 0; at < taken; at++)
    enactor->rows[(fed + at) % ROWS] = (struct row){due_ns[at], duration_ns[at], queue[at], launch[at]};
  atomic_store(&enactor->fed, fed + taken);
  return taken;
}

int64_t spanlite_enact_drained(struct enactor *enactor) {
  if (atomic_load(&enactor->broken)) return -1;
  return atomic_load(&enactor->settled) == atomic_load(&enactor->fed);
}

void spanlite_enact_stop(struct enactor *enactor) { atomic_store(&enactor->stopping, true); }
