#include "losses.h"

#include <stdatomic.h>

static _Atomic uint64_t counts[LOSSES];

static const char *const keys[LOSSES] = {
    [LOST_CUPTI] = "dropped.cupti",       [LOST_POOL] = "dropped.collector_pool",
    [LOST_QUEUE] = "dropped.agent_slow",  [LOST_NO_AGENT] = "dropped.no_agent",
    [LOST_DISCONNECT] = "dropped.disconnect", [LOST_HUNG] = "dropped.agent_hung",
    [LOST_BROKEN] = "dropped.broken_buffer", [LOST_EXIT] = "dropped.process_exit",
    [LOST_STAMPS] = "stamps_dropped",
};

void lose(enum loss reason, uint64_t count) {
  if (count) atomic_fetch_add_explicit(&counts[reason], count, memory_order_relaxed);
}

uint64_t take_loss(enum loss reason) { return atomic_exchange_explicit(&counts[reason], 0, memory_order_relaxed); }

const char *loss_key(enum loss reason) { return keys[reason]; }
