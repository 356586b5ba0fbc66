/* The thread that talks to the agent; it starts when the program first uses the GPU. */
#ifndef SPANLITE_SENDER_H
#define SPANLITE_SENDER_H

#include <stdbool.h>
#include <stdint.h>

/* Starts it, once; any thread. Nothing where it cannot be started. */
void sender_start(void);

/* At exit: flushes, sends what is there, says goodbye. Returns when that is done, at the latest after so many ns. */
void sender_finish(uint64_t most_ns);

#endif
