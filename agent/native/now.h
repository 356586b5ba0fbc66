/* Clocks, in ns. */
#ifndef SPANLITE_NOW_H
#define SPANLITE_NOW_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(clockid_t clock) {
  struct timespec at;
  clock_gettime(clock, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static inline uint64_t monotonic_ns(void) { return (uint64_t)clock_ns(CLOCK_MONOTONIC); }

#endif
