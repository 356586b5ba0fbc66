#include "permission.h"

#include <stdatomic.h>

static const uint64_t SILENCE_NS = 2000000000;

static _Atomic int last = WORD_NONE;

void permission_heard(enum word word) { atomic_store(&last, (int)word); }

bool permission_refused(void) { return atomic_load(&last) == WORD_REST; }

bool permission_given(uint64_t now_ns, bool connected) {
  static uint64_t connected_at;
  if (!connected) {
    connected_at = 0;
    return false;
  }
  if (!connected_at) connected_at = now_ns;
  int word = atomic_load(&last);
  return word == WORD_SPEAK || (word == WORD_NONE && now_ns - connected_at >= SILENCE_NS);
}
