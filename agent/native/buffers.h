/* The bounded pool of activity buffers, and the queue of filled ones.
 *
 * A buffer is free, or CUPTI's, or queued, or the sender's. Nothing here waits for the agent: a pool that is used up
 * takes the oldest queued buffer back, and if CUPTI holds them all, hands out scratch whose content is thrown away. All
 * that is lost is counted. */
#ifndef SPANLITE_BUFFERS_H
#define SPANLITE_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cupti_abi.h"
#include "names.h"

struct buffer {
  uint8_t *bytes;
  struct buffer *next; /* in the queue or the free list */
  uint32_t valid;      /* bytes of whole records */
  uint32_t spans;
  uint32_t ticket;     /* their order: names with this ticket or an earlier one go before it */
};

/* What CUPTI calls, from any thread. */
void buffer_requested(uint8_t **bytes, size_t *size, size_t *max_records);
void buffer_completed(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size, size_t valid);

/* The oldest queued buffer; NULL where there is none. The caller gives it back. */
struct buffer *take_queued(void);
void give_back(struct buffer *buffer);

/* Sleeps until a buffer is queued, somebody wakes, or the monotonic time has come. The sender alone. */
void wait_for_buffers(uint64_t until_ns);
void wake_sender(void);

/* Names of kernels; written under the queue's lock. */
extern struct names kernel_names;

/* Buffers that were completed since the start. */
uint64_t buffers_completed(void);

/* At the end: spans whose records CUPTI has not given back, because a kernel still runs that stands in the same buffer.
 * Reckoned from CUPTI's counter of calls, from the last kernel that came on; 0 where nothing is missing, or too little
 * to say. */
uint64_t buffers_unreturned(uint32_t counter);

/* Spans in them, and whether more than half of the pool is queued. */
uint64_t buffers_spans(void);
bool buffers_crowded(void);

#endif
