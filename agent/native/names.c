#include "names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const uint64_t made_up = 1ull << 63; /* user space ends below */

uint32_t name_length(const char *text) { return (uint32_t)strnlen(text, NAME_LENGTH_MOST); }

uint64_t name_hash(const char *text, uint32_t length) {
  const uint64_t factor = 0x9e3779b97f4a7c15;
  uint64_t hash = factor ^ length, word;
  for (; length >= 8; length -= 8, text += 8) {
    memcpy(&word, text, 8);
    hash = (hash ^ word) * factor;
    hash ^= hash >> 32;
  }
  word = 0;
  memcpy(&word, text, length);
  hash = (hash ^ word) * factor;
  hash ^= hash >> 29;
  return hash ? hash : 1;
}

/* The slot of a key, or the free one where it would be. At most a quarter of the slots is taken. */
static struct name_slot *slot_of(struct names *names, uint64_t key) {
  uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15) >> 40) & (NAME_SLOTS - 1);
  for (;; at = (at + 1) & (NAME_SLOTS - 1)) {
    uint64_t there = atomic_load_explicit(&names->slots[at].key, memory_order_acquire);
    if (there == key || there == 0) return &names->slots[at];
  }
}

const struct name *names_find(struct names *names, uint64_t key) {
  if (atomic_load_explicit(&names->count, memory_order_acquire) == 0) return NULL;
  struct name_slot *slot = slot_of(names, key);
  if (atomic_load_explicit(&slot->key, memory_order_acquire) == 0) return NULL;
  return &names->log[atomic_load_explicit(&slot->entry, memory_order_acquire)];
}

static bool mapped(struct names *names) {
  if (names->slots) return true;
  const size_t log_bytes = sizeof(struct name) * NAMES_MOST, slot_bytes = sizeof(struct name_slot) * NAME_SLOTS;
  char *both = mmap(NULL, log_bytes + slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
  if (both == MAP_FAILED) return false;
  names->log = (struct name *)both;
  names->slots = (struct name_slot *)(both + log_bytes);
  return true;
}

const struct name *names_add(struct names *names, uint64_t key, uint64_t pointer, const char *text, uint32_t length,
                             uint64_t hash, uint32_t ticket) {
  uint32_t count = atomic_load_explicit(&names->count, memory_order_relaxed);
  if (count == NAMES_MOST || names->bytes + length > NAME_BYTES_MOST || !mapped(names)) return NULL;
  char *copy = malloc(length ? length : 1);
  if (!copy) return NULL;
  memcpy(copy, text, length);
  names->bytes += length;
  names->log[count] = (struct name){pointer ? pointer : made_up | count, hash, copy, length, ticket};
  struct name_slot *slot = slot_of(names, key);
  atomic_store_explicit(&slot->entry, count, memory_order_release);
  atomic_store_explicit(&slot->key, key, memory_order_release);
  atomic_store_explicit(&names->count, count + 1, memory_order_release);
  return &names->log[count];
}
