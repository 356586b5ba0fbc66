/* When kinds are on: always, or the first ON ms of every PERIOD ms. */
#ifndef SPANLITE_DUTY_H
#define SPANLITE_DUTY_H

#include <stdbool.h>
#include <stdint.h>

struct duty {
  bool on;
  uint64_t until_ns; /* monotonic; the far future where nothing changes */
};

struct duty duty_at(uint64_t now_ns);

#endif
