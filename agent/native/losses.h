/* Spans that were given up, by reason, until a STATS frame has told of them. */
#ifndef SPANLITE_LOSSES_H
#define SPANLITE_LOSSES_H

#include <stdint.h>

enum loss {
  LOST_CUPTI,      /* CUPTI says it dropped them */
  LOST_POOL,       /* they came in a scratch buffer: CUPTI held the whole pool */
  LOST_QUEUE,      /* the agent was so slow that their buffer was needed again */
  LOST_NO_AGENT,   /* nobody listened */
  LOST_DISCONNECT, /* the agent hung up before it had read them */
  LOST_HUNG,       /* the agent took nothing for too long */
  LOST_BROKEN,     /* bytes that are no records; estimated by the size of a kernel record */
  LOST_EXIT,       /* the process ended before they could be sent */
  LOST_STAMPS,     /* not spans: boundary stamps for which there was no room */
  LOSSES,
};

void lose(enum loss reason, uint64_t count);

/* Takes what is counted and sets it to zero; `lose` gives it back if it could not be told. */
uint64_t take_loss(enum loss reason);

/* The key in a STATS frame, e.g. "dropped.cupti". */
const char *loss_key(enum loss reason);

#endif
