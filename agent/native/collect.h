/* Collecting: subscribed to CUPTI, buffer callbacks registered, kinds enabled. And giving that up for a while. */
#ifndef SPANLITE_COLLECT_H
#define SPANLITE_COLLECT_H

#include <stdbool.h>
#include <stdint.h>

#include "windows.h"

/* Begins to collect, when libcuda initialises. What goes wrong is a state; what may pass is tried again. */
void collect_start(void);

/* A context or a buffer was asked for: the program uses the GPU. Any thread, in a callback of CUPTI. */
void collect_saw_work(void);

/* Regular work of the sender: asks again after a conflict, moves windows along. Returns when it is due next. */
uint64_t collect_step(uint64_t now_ns);

/* Takes from CUPTI the records of all that is done; never those of work that still runs. */
void collect_flush(void);

/* Whether there is anything that an agent would want to know. */
bool collect_has_work(void);

/* The process keeps to a budget, and wants the agent's word. */
bool collect_asks(void);

/* CUPTI is not touched yet: not even its clock is read. */
bool collect_is_aloof(void);

/* MODE_FULL, …: how much of the work is recorded at present. */
uint32_t collect_mode(void);

/* The process exits: the last window, the last records. */
void collect_end(void);

/* Why CUPTI is left alone; several reasons may hold at once. */
enum pause { PAUSED_BY_PROGRAM = 1, PAUSED_FOR_CLIENT = 2 };

/* Leaves CUPTI to somebody else: kinds off, buffers taken back, unsubscribed. Returns when that is done. */
void collect_pause(enum pause reason);

/* Takes it up again if no other reason is left. */
void collect_resume(enum pause reason);

/* The other client is done, it seems: the sender comes back when so many ns have passed without another word of it.
 * If it stays subscribed all the same, we collect without a subscription, hence without stamps. */
void collect_client_left(uint64_t wait_ns);

#endif
