#include "contexts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static const uint64_t made_up = 3ull << 62; /* beside those of names.c */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of writers */
static char texts[CONTEXTS_KEPT][CONTEXT_LENGTH];
static _Atomic uint64_t written, taken;

bool is_context(const char *text) {
  return strnlen(text, CONTEXT_LENGTH + 1) == CONTEXT_LENGTH && text[2] == '-' && text[35] == '-' && text[52] == '-';
}

uint64_t context_name(const char *text) {
  pthread_mutex_lock(&lock);
  uint64_t number = atomic_load_explicit(&written, memory_order_relaxed);
  bool room = number - atomic_load_explicit(&taken, memory_order_acquire) < CONTEXTS_KEPT;
  if (room) {
    memcpy(texts[number % CONTEXTS_KEPT], text, CONTEXT_LENGTH);
    atomic_store_explicit(&written, number + 1, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
  return room ? made_up | number : 0;
}

bool context_take(uint64_t *pointer, char text[CONTEXT_LENGTH]) {
  uint64_t number = atomic_load_explicit(&taken, memory_order_relaxed);
  if (number == atomic_load_explicit(&written, memory_order_acquire)) return false;
  *pointer = made_up | number;
  memcpy(text, texts[number % CONTEXTS_KEPT], CONTEXT_LENGTH);
  atomic_store_explicit(&taken, number + 1, memory_order_release);
  return true;
}
