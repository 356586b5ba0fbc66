/* What the collector is doing, and whether it may still do anything. */
#ifndef SPANLITE_STATE_H
#define SPANLITE_STATE_H

#include <stdbool.h>

enum state {
  STATE_IDLE,       /* libcuda has not called yet */
  STATE_DISABLED,   /* the kill switch is set */
  STATE_NO_CUPTI,   /* no libcupti was found, or it lacks a function */
  STATE_UNKNOWN_CUPTI_VERSION,
  STATE_CUPTI_ERROR, /* CUPTI refused; the number stands behind it: cupti_error_15 */
  STATE_SUBSCRIBER_CONFLICT, /* another tool has CUPTI; asked again every ten seconds */
  STATE_WAITING,    /* no context yet; or, within a budget, no agent */
  STATE_RESTING,    /* another process speaks for this one: CUPTI is not touched */
  STATE_ACTIVE,
  STATE_NO_RECORDS, /* active, but CUPTI gives nothing back of what is launched: a driver that is too new or too old for it */
  STATE_PAUSED,     /* by spanlite_pause, or for another tool */
  STATE_FORKED,     /* a child of the traced process: inert for ever */
  STATE_LEAVING,    /* the process exits */
};

void set_state(enum state now, int cupti_result);
enum state current_state(void);

/* As text, e.g. "active", "cupti_error_15". Static or thread-local: valid until the thread's next call. */
const char *state_text(void);

/* True for ever once the process forked away or exits: touch neither CUPTI nor the socket, start nothing. */
bool inert(void);

#endif
