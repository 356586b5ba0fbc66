#include "state.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

/* State in the low half, CUPTI's result in the high half: both change at once. */
static _Atomic uint64_t word = STATE_IDLE;

static const char *const texts[] = {
    [STATE_IDLE] = "idle",
    [STATE_DISABLED] = "disabled",
    [STATE_NO_CUPTI] = "no_cupti",
    [STATE_UNKNOWN_CUPTI_VERSION] = "unknown_cupti_version",
    [STATE_CUPTI_ERROR] = "cupti_error",
    [STATE_SUBSCRIBER_CONFLICT] = "subscriber_conflict",
    [STATE_WAITING] = "waiting",
    [STATE_RESTING] = "resting",
    [STATE_ACTIVE] = "active",
    [STATE_NO_RECORDS] = "no_records",
    [STATE_PAUSED] = "paused",
    [STATE_FORKED] = "forked",
    [STATE_LEAVING] = "leaving",
};

enum state current_state(void) { return (enum state)(uint32_t)atomic_load(&word); }

bool inert(void) { return current_state() >= STATE_FORKED; }

void set_state(enum state now, int cupti_result) {
  uint64_t next = (uint64_t)(uint32_t)cupti_result << 32 | (uint32_t)now;
  uint64_t before = atomic_load(&word);
  do {
    if ((uint32_t)before >= STATE_FORKED && now < STATE_FORKED) return; /* there is no way back */
  } while (!atomic_compare_exchange_weak(&word, &before, next));
}

const char *state_text(void) {
  static _Thread_local char written[32];
  uint64_t both = atomic_load(&word);
  const char *text = texts[(uint32_t)both];
  if ((uint32_t)both != STATE_CUPTI_ERROR) return text;
  snprintf(written, sizeof written, "%s_%u", text, (unsigned)(both >> 32));
  return written;
}
