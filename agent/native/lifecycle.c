#include "lifecycle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "collect.h"
#include "cupti.h"
#include "foreign.h"
#include "link.h"
#include "sender.h"
#include "settings.h"
#include "stamps.h"
#include "state.h"

#define EXPORTED __attribute__((visibility("default")))

enum { LEAVE_NS = 200000000 };

static _Atomic bool initialized;

/* The child has no thread of ours, and CUDA does not work in it: from here on nothing is done in it, whatever it calls.
 * A program that forks before it uses the GPU (a launcher, a data loader) has children that start afresh. */
static void forked(void) {
  stamps_forget_thread();
  if (!atomic_load(&initialized)) return;
  set_state(STATE_FORKED, 0);
  link_close();
}

/* Everything that CUPTI holds stays with it: whoever frees or finalizes now crashes programs at their very end. */
static void leave(void) {
  if (inert()) return;
  sender_finish(LEAVE_NS);
  set_state(STATE_LEAVING, 0);
}

static void watch(void) {
  pthread_atfork(NULL, NULL, forked);
  atexit(leave);
}

void lifecycle_watch(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch);
}

/* libcuda calls it in cuInit if CUDA_INJECTION64_PATH names this library. Anything but 1 would be an error to it. */
EXPORTED int InitializeInjection(void) {
  if (settings()->disabled) {
    set_state(STATE_DISABLED, 0);
    return 1;
  }
  if (atomic_exchange(&initialized, true)) return 1;
  lifecycle_watch();
  if (load_cupti()) {
    foreign_watch();
    stamps_found_driver();
    collect_start();
  }
  return 1;
}

/* For the program itself, by ctypes. */
EXPORTED void spanlite_attach(int in_use) {
  InitializeInjection();
  /* The context that the program has already is told of by nobody. */
  if (in_use && current_state() == STATE_WAITING) collect_saw_work();
}
EXPORTED const char *spanlite_state(void) { return state_text(); }
EXPORTED void spanlite_pause(void) { collect_pause(PAUSED_BY_PROGRAM); }
EXPORTED void spanlite_resume(void) { collect_resume(PAUSED_BY_PROGRAM); }

EXPORTED int spanlite_push(const char *name) {
  static _Atomic bool ready;
  if (settings()->disabled || !settings()->stages) return 0;
  if (!atomic_load_explicit(&ready, memory_order_relaxed) && !atomic_exchange(&ready, true)) {
    lifecycle_watch();
    stamps_start();
  }
  return stamp_push(stamps_name(name));
}
EXPORTED int spanlite_pop(void) { return stamp_pop(); }
