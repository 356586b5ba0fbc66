#include "governor.h"

#include <stdlib.h>
#include <string.h>

/* Measured on an H200 with CUPTI 13.0 (benchmarks/gpu/residue.py), rounded up; each an upper bound of what the program
 * feels, since much of it passes while it waits for something else. Seconds. */
static const double SPAN = 0.3e-6;          /* of GPU time a kernel, while kinds are on */
static const double LAUNCH = 0.5e-6;        /* of the launching thread, likewise */
static const double RESIDUE = 0.7e-6;       /* of the launching thread, for ever after kinds were on once */
static const double GRAPH_RESIDUE = 8.0e-6; /* the same, where a launch is one of a graph */

static const double GRAPHS = 8;       /* spans a launch from which on it must be graphs */
static const double LEAST_SHARE = 10; /* however much is spent already, a tenth of the budget buys windows */
static const double BACK_TO_FULL = 1.25;
static const uint64_t MS = 1000000;

enum { ON_LEAST_MS = 5, ON_MOST_MS = 250, PERIOD_MS = 4000, OFF_MOST_MS = 10000, PAIRS_LEAST = 8, LAUNCHES_LEAST = 500 };

static double per_s(uint64_t count, uint64_t ns) { return ns ? (double)count * 1e9 / (double)ns : 0; }

void governor_start(struct governor *governor, double budget, uint64_t seed) {
  memset(governor, 0, sizeof *governor);
  governor->budget = budget;
  governor->spans_per_launch = 1;
  governor->random = seed | 1;
}

void governor_saw_spans(struct governor *governor, uint64_t spans, uint64_t launches) {
  if (launches) governor->spans_per_launch += ((double)spans / (double)launches - governor->spans_per_launch) / 2;
}

/* Share of the program's time that kinds cost while they are on, at most. */
static double reckoned(const struct governor *governor, double launches_per_s) {
  return launches_per_s * (LAUNCH + SPAN * governor->spans_per_launch);
}

double governor_residue(const struct governor *governor, uint64_t launches, uint64_t ns) {
  return per_s(launches, ns) * (governor->spans_per_launch > GRAPHS ? GRAPH_RESIDUE : RESIDUE);
}

bool governor_affords_full(const struct governor *governor, uint64_t launches, uint64_t ns) {
  double pace = per_s(launches, ns);
  return reckoned(governor, pace) + governor_residue(governor, launches, ns) <= governor->budget;
}

/* The program's pace just before, with kinds off, over its pace with them on: what tracing really costs, and noise. Few
 * launches say little: they are added up until they are enough. */
static void note_pair(struct governor *governor, struct observed observed) {
  struct observed *sum = &governor->sum;
  if (observed.off_ns == 0) return;
  sum->on_ns += observed.on_ns;
  sum->on_launches += observed.on_launches;
  sum->off_ns += observed.off_ns;
  sum->off_launches += observed.off_launches;
  if (sum->on_launches < LAUNCHES_LEAST || sum->off_launches < LAUNCHES_LEAST) return;
  double on = per_s(sum->on_launches, sum->on_ns), off = per_s(sum->off_launches, sum->off_ns);
  governor->slowed[governor->pairs++ % GOVERNOR_PAIRS] = off / on - 1;
  *sum = (struct observed){0, 0, 0, 0};
}

static int by_size(const void *one, const void *other) {
  double difference = *(const double *)one - *(const double *)other;
  return (difference > 0) - (difference < 0);
}

/* What is measured, where it is sure enough: the upper quartile of the pairs if that is below what is reckoned, the lower
 * one if that is above. */
static double cost_of(const struct governor *governor, double reckoned_cost) {
  uint32_t count = governor->pairs < GOVERNOR_PAIRS ? governor->pairs : GOVERNOR_PAIRS;
  if (count < PAIRS_LEAST) return reckoned_cost;
  double sorted[GOVERNOR_PAIRS];
  memcpy(sorted, governor->slowed, sizeof sorted);
  qsort(sorted, count, sizeof *sorted, by_size);
  double lower = sorted[count / 4], upper = sorted[count - 1 - count / 4];
  double measured = upper < reckoned_cost ? upper : lower > reckoned_cost ? lower : reckoned_cost;
  return measured > reckoned_cost / 4 ? measured : reckoned_cost / 4;
}

struct plan governor_plan(struct governor *governor, struct observed observed) {
  note_pair(governor, observed);
  uint64_t launches = observed.on_launches + observed.off_launches, ns = observed.on_ns + observed.off_ns;
  double left = governor->budget - governor_residue(governor, launches, ns);
  if (left < governor->budget / LEAST_SHARE) left = governor->budget / LEAST_SHARE;
  double cost = cost_of(governor, reckoned(governor, per_s(launches, ns)));
  if (cost * BACK_TO_FULL <= left) return (struct plan){true, ON_MOST_MS * MS, 0};
  double share = left / cost, on = share * PERIOD_MS;
  if (share > 1) share = 1;
  on = on < ON_LEAST_MS ? ON_LEAST_MS : on > ON_MOST_MS ? ON_MOST_MS : on;
  double off = on * (1 / share - 1);
  if (off > OFF_MOST_MS) off = OFF_MOST_MS;
  return (struct plan){false, (uint64_t)(on * (double)MS), (uint64_t)(off * (double)MS)};
}

uint64_t governor_jitter(struct governor *governor, uint64_t off_ns) {
  governor->random ^= governor->random << 13;
  governor->random ^= governor->random >> 7;
  governor->random ^= governor->random << 17;
  return off_ns / 2 + (uint64_t)((double)off_ns * ((double)(governor->random >> 11) * 0x1p-53));
}
