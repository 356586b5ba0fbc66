/* Whether CUPTI may be touched at all, in a program that is watched within a budget.
 *
 * Attached, CUPTI costs each launch a little even while nothing is recorded, and that cannot be undone. So it is left
 * alone until the program uses a GPU, an agent listens, and the agent does not say that another process speaks for this
 * one. */
#ifndef SPANLITE_PERMISSION_H
#define SPANLITE_PERMISSION_H

#include <stdbool.h>
#include <stdint.h>

/* The agent's word. */
enum word { WORD_NONE, WORD_SPEAK, WORD_REST };
void permission_heard(enum word word);

/* To be asked every tenth of a second until it is given. An agent that says nothing for two seconds objects to nothing. */
bool permission_given(uint64_t now_ns, bool connected);

/* The agent has said that another process speaks for this one. */
bool permission_refused(void);

#endif
