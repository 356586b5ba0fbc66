/* Collecting: subscribed to CUPTI, buffer callbacks registered, kinds enabled. And giving that up for a while. */
#ifndef SPANLITE_COLLECT_H
#define SPANLITE_COLLECT_H

#include <stdbool.h>
#include <stdint.h>

/* Begins to collect, when libcuda initialises. What goes wrong is a state; what may pass is tried again. */
void collect_start(void);

/* A context or a buffer was asked for: the program uses the GPU. Any thread, in a callback of CUPTI. */
void collect_saw_work(void);

/* Regular work of the sender: asks again after a conflict, switches kinds on and off. Returns when it is due next. */
uint64_t collect_step(uint64_t now_ns);

/* Takes from CUPTI the records of all that is done; never those of work that still runs. */
void collect_flush(void);

/* Why CUPTI is left alone; several reasons may hold at once. */
enum pause { PAUSED_BY_PROGRAM = 1, PAUSED_FOR_CLIENT = 2 };

/* Leaves CUPTI to somebody else: kinds off, buffers taken back, unsubscribed. Returns when that is done. */
void collect_pause(enum pause reason);

/* Takes it up again if no other reason is left. */
void collect_resume(enum pause reason);

/* The other client is done, it seems: the sender comes back when so many ns have passed without another word of it.
 * If it stays subscribed all the same, we collect without a subscription, hence without stamps. */
void collect_client_left(uint64_t wait_ns);

/* Calls of cuCtxGetCurrent are to be seen from now on: stamps are made by them. */
void collect_want_stamps(void);

#endif
