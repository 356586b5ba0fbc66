/* When kinds are on, in a program that is watched within a budget: windows, and what each of them stands for.
 *
 * The sender's thread moves it along. */
#ifndef SPANLITE_WINDOWS_H
#define SPANLITE_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

/* As it goes to the agent: from open_ns on, by CUPTI's clock and until another window says otherwise, spans each stand for
 * launched / traced. What is recorded was launched while kinds were on, so it starts after they came on. Correlation ids
 * would say the same, but those of graphs are wrong in all sessions but the first before CUPTI 13.1 update 1. */
struct window {
  uint64_t open_ns;
  uint64_t launched; /* since the window before it closed */
  uint64_t traced;   /* of those, while it was open */
  uint32_t mode;     /* SamplingMode of proto/spanlite/v1/batch.proto */
  uint32_t zero;
};

enum { MODE_NONE = 0, MODE_FULL = 1, MODE_DUTY_CYCLE = 2 };

/* What is due now. `kinds` switches them on and off. Returns when it is to be called next; sets `*flush` where records
 * are to be fetched now. */
uint64_t windows_step(uint64_t now_ns, bool connected, void (*kinds)(bool on), bool *flush);

/* CUPTI is let go of: what is open ends here. */
void windows_abandon(void);

/* The process exits: no later window stands for what ran since the last one. */
void windows_end(void);

/* Buffers are kept while the window that they belong to is open: what it stands for is not known yet. */
bool windows_keep_buffers(void);

/* Windows from the `*next`-th on, at most so many; of older ones than the last 64 nothing is known any more. */
uint32_t windows_take(uint64_t *next, struct window *into, uint32_t most);
uint64_t windows_count(void);

/* SamplingMode at present; MODE_NONE before the first step. */
uint32_t windows_mode(void);

/* Launches while kinds were on. */
uint64_t windows_traced(void);

/* For some seconds the program has been at work, and what being attached costs was within the budget. */
bool windows_affordable(void);

#endif
