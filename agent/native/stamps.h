/* Boundaries of ranges, stamped with the newest correlation id: which launches lie in which range.
 *
 * Every call of the driver draws a correlation id from the counter that numbers the launches, so a call that does
 * nothing else (cuCtxGetCurrent) tells where the counter stands. */
#ifndef SPANLITE_STAMPS_H
#define SPANLITE_STAMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "names.h"

struct stamp { /* docs/frames.md */
  uint64_t thread, name;
  int64_t time_ns;
  uint32_t correlation;
  int32_t delta;
};

/* Names of ranges, keyed by their text. */
extern struct names range_names;

/* Makes stamping possible: gets the ring. To be called before the first stamp, maybe again. */
void stamps_start(void);

/* libcuda is loaded by now, and may be called. */
void stamps_found_driver(void);

/* The made-up pointer of a range's name, the same for the same text; 0 if there is no room for one more. */
uint64_t stamps_name(const char *text);

/* An opening and a closing on this thread. They nest; the depth before the opening, after the closing.
 *
 * No stamp is made while CUPTI does not tell ids (no CUDA yet, paused), nor of ranges nested deeper than 64, and none
 * of the closings of those ranges. */
int stamp_push(uint64_t name);
int stamp_pop(void);

/* Whether stamps are worth making: not in a process in which kinds were never on. */
void stamps_want(bool wanted);

/* Where CUPTI's counter of calls stands; asking is one call more. 0 where nobody tells. */
uint32_t stamps_counter(void);

/* From CUPTI's callback, on the thread that makes the stamp. */
void stamps_saw_call(uint32_t correlation);

/* Stamps in order, at most so many; the sender's thread alone. */
uint32_t stamps_take(struct stamp *into, uint32_t most);

/* In the child of a fork: the thread has another number. */
void stamps_forget_thread(void);

#endif
