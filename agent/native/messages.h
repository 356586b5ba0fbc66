/* What the collector says to the agent, frame by frame. Used by the sender's thread alone.
 *
 * All return SENT without doing anything, or close the connection and say how it ended. */
#ifndef SPANLITE_MESSAGES_H
#define SPANLITE_MESSAGES_H

#include <stdbool.h>

#include "buffers.h"
#include "link.h"

/* The first frame. Each connection is a session of its own: its span ids and numbers start anew. */
enum sent messages_hello(void);

/* The last HELLO named no GPU because libcuda did not tell yet, and it would now. */
bool messages_lack_gpus(void);

/* Both clocks, read as closely together as they can be. */
enum sent messages_clock(void);

/* Stamps since the last call, their names before them. Without a connection they are thrown away. */
enum sent messages_ranges(void);

/* Windows that have closed since the last call; after a HELLO also the last ones before it. */
enum sent messages_windows(void);

/* What has to come before a buffer, and the buffer. SENT: the agent has read all of it. */
enum sent messages_buffer(const struct buffer *buffer);

/* Losses since the last one, and the state if it changed. Nothing where there is nothing to tell. */
enum sent messages_stats(void);

/* The last frame; closes the connection. */
void messages_goodbye(const char *reason);

#endif
