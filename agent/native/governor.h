/* How much of the time kinds may be on, so that tracing costs the program no more than a budget.
 *
 * Arithmetic only: nothing here reads a clock or calls CUPTI. */
#ifndef SPANLITE_GOVERNOR_H
#define SPANLITE_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

enum { GOVERNOR_PAIRS = 16 };

/* A time with kinds on and the time with kinds off before it. */
struct observed {
  uint64_t on_ns, on_launches, off_ns, off_launches;
};

struct governor {
  double budget;           /* share of the program's time, e.g. 0.01 */
  double spans_per_launch; /* of what was traced; far above 1 where CUDA graphs are launched */
  double slowed[GOVERNOR_PAIRS]; /* pace with kinds off / pace with kinds on - 1, of the last pairs */
  uint32_t pairs;
  struct observed sum; /* of what is no pair yet */
  uint64_t random;
};

/* On for so long, then off; `full`: on for good. */
struct plan {
  bool full;
  uint64_t on_ns, off_ns;
};

void governor_start(struct governor *governor, double budget, uint64_t seed);

/* So many spans came of so many launches. */
void governor_saw_spans(struct governor *governor, uint64_t spans, uint64_t launches);

/* Whether kinds may stay on at this pace. */
bool governor_affords_full(const struct governor *governor, uint64_t launches, uint64_t ns);

/* What is next, after a time on and a time off. */
struct plan governor_plan(struct governor *governor, struct observed observed);

/* The same shares with a length of off time that follows no clock: a loop of the program must not stay in step. */
uint64_t governor_jitter(struct governor *governor, uint64_t off_ns);

/* Share of the program's time that having been on once may cost for good. */
double governor_residue(const struct governor *governor, uint64_t launches, uint64_t ns);

#endif
