#include "walk.h"

#include <stdatomic.h>
#include <string.h>

#include "cupti.h"

enum { MEMO = 512, LONGEST_RECORD = 1 << 16, AHEAD = 2048 };

/* Learnt from CUPTI at the first record of each kind: it alone knows what it writes. */
static _Atomic uint32_t sizes[KINDS];

uint32_t record_size(uint32_t kind) { return atomic_load_explicit(&sizes[kind], memory_order_relaxed); }

static uint32_t learn(uint8_t *buffer, size_t valid, uint32_t at, uint32_t kind) {
  uint8_t *record = buffer + at;
  CUptiResult result = cupti.ActivityGetNextRecord(buffer, valid, &record);
  size_t size;
  if (result == CUPTI_SUCCESS && record > buffer + at)
    size = (size_t)(record - (buffer + at));
  else if (result == CUPTI_ERROR_MAX_LIMIT_REACHED)
    size = valid - at; /* the last record of the buffer */
  else
    return 0;
  if (size < RECORD_ALIGNMENT || size % RECORD_ALIGNMENT || size > LONGEST_RECORD) return 0;
  atomic_store_explicit(&sizes[kind], (uint32_t)size, memory_order_relaxed);
  return (uint32_t)size;
}

struct walked walk(uint8_t *buffer, size_t valid, name_seen seen, void *context) {
  struct walked found = {0, 0, 0};
  const uint8_t *kernel = NULL; /* the last one's record */
  const char *memo[MEMO];
  memset(memo, 0, sizeof memo);
  uint32_t at = 0;
  while (at + RECORD_ALIGNMENT <= valid) {
    uint32_t kind;
    /* Two of a kernel record's four lines are read, which is no pattern that a processor foresees. */
    __builtin_prefetch(buffer + at + AHEAD);
    __builtin_prefetch(buffer + at + AHEAD + KERNEL_NAME_OFFSET);
    memcpy(&kind, buffer + at, sizeof kind);
    if (kind == 0 || kind >= KINDS) break;
    uint32_t size = record_size(kind);
    if (!size) size = learn(buffer, valid, at, kind);
    if (!size || size > valid - at) break;
    if (kind == KIND_CONCURRENT_KERNEL || kind == KIND_KERNEL) {
      if (size < KERNEL_NAME_OFFSET + sizeof(char *)) break;
      const char *name;
      memcpy(&name, buffer + at + KERNEL_NAME_OFFSET, sizeof name);
      uintptr_t place = (uintptr_t)name;
      const char **last = &memo[(place >> 3 ^ place >> 12) & (MEMO - 1)];
      if (*last != name) {
        *last = name;
        seen(context, name);
      }
      kernel = buffer + at;
      found.spans++;
    } else if (kind == KIND_MEMCPY || kind == KIND_MEMSET) {
      found.spans++;
    }
    at += size;
  }
  found.whole = at;
  if (kernel) memcpy(&found.correlation, kernel + KERNEL_CORRELATION_OFFSET, sizeof found.correlation);
  return found;
}
