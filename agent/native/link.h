/* The connection to the agent: frames out, single bytes in. Used by the sender's thread alone. */
#ifndef SPANLITE_LINK_H
#define SPANLITE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "permission.h"

/* docs/frames.md */
enum frame { FRAME_HELLO = 1, FRAME_NAMES, FRAME_BUFFER, FRAME_RANGES, FRAME_CLOCK, FRAME_STATS, FRAME_BYE, FRAME_WINDOWS = 9 };

enum sent {
  SENT,
  SENT_HUNG,   /* the agent took nothing for SPANLITE_HUNG_MS, or the process has no more time */
  SENT_CLOSED, /* it hung up */
};

/* Connects to the first place where an agent listens. False if there is none. */
bool link_open(void);
bool link_is_open(void);

/* Notices that the agent has hung up, without sending. */
bool link_check(void);

/* The last word that has come from the agent since the last call. */
enum word link_word(void);

/* One frame. On anything but SENT the connection is closed. */
enum sent link_send(enum frame type, const void *payload, size_t length);

/* One frame of at least a byte, and waits until the agent has read it. On anything but SENT it will never have been read,
 * whatever becomes of the agent. */
enum sent link_deliver(enum frame type, const void *payload, size_t length);

void link_close(void);

/* From now on nothing is waited for longer than until then (monotonic ns). */
void link_hurry(uint64_t until_ns);

#endif
