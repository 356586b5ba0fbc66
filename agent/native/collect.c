#include "collect.h"

#include <pthread.h>
#include <stdatomic.h>

#include "buffers.h"
#include "cupti.h"
#include "duty.h"
#include "now.h"
#include "sender.h"
#include "stamps.h"
#include "state.h"

#define RETRY_NS (10 * 1000000000ull)

/* Kinds with a span each, none of API calls: those cost most, and CUPTI never forgets that they were on. */
static const int kinds[] = {KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMSET};

/* Held while CUPTI is told what to do. No callback of CUPTI takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_SubscriberHandle subscriber;
static bool subscribed, registered, enabled, wants_stamps, shares;
static int paused; /* bits of enum pause */
static uint64_t retry_at, resume_at;
static _Atomic bool worked;

static void on_callback(void *userdata, int domain, uint32_t cbid, const void *data) {
  (void)userdata;
  if (domain == DOMAIN_DRIVER_API && cbid == DRIVER_cuCtxGetCurrent) {
    const struct cupti_callback_data *call = data;
    if (call->callback_site == API_ENTER) stamps_saw_call(call->correlation_id);
  } else if (domain == DOMAIN_RESOURCE && cbid == RESOURCE_CONTEXT_CREATED) {
    collect_saw_work();
  }
}

void collect_saw_work(void) {
  if (atomic_load_explicit(&worked, memory_order_relaxed) || atomic_exchange(&worked, true)) return;
  if (current_state() == STATE_WAITING) set_state(STATE_ACTIVE, 0);
  sender_start();
}

static CUptiResult enable_kinds(bool on) {
  CUptiResult first = CUPTI_SUCCESS;
  for (unsigned at = 0; at < sizeof kinds / sizeof *kinds; at++) {
    CUptiResult result = on ? cupti.ActivityEnable(kinds[at]) : cupti.ActivityDisable(kinds[at]);
    if (first == CUPTI_SUCCESS) first = result;
  }
  enabled = on;
  return first;
}

static uint64_t unix_clock(void) { return (uint64_t)clock_ns(CLOCK_REALTIME); }

/* A client may have given CUPTI a clock of its own (torch.profiler: the processor's ticks), which outlives it and cannot
 * be taken back, only replaced. Unix time is what CUPTI's own clock tells. Not where nobody was before us: registering a
 * clock spoils the first records of some releases. */
static void put_clock_right(void) {
  if (shares && cupti.ActivityRegisterTimestampCallback) cupti.ActivityRegisterTimestampCallback(unix_clock);
}

static void let_go(void) {
  if (enabled) enable_kinds(false);
  if (registered) cupti.ActivityFlushAll(0);
  if (subscribed) cupti.Unsubscribe(subscriber);
  registered = subscribed = false;
}

static CUptiResult subscribe(void) {
  CUptiResult result = cupti.Subscribe(&subscriber, on_callback, NULL);
  if (result != CUPTI_SUCCESS) return result;
  subscribed = true;
  result = cupti.EnableCallback(1, subscriber, DOMAIN_RESOURCE, RESOURCE_CONTEXT_CREATED);
  if (result == CUPTI_SUCCESS && wants_stamps)
    result = cupti.EnableCallback(1, subscriber, DOMAIN_DRIVER_API, DRIVER_cuCtxGetCurrent);
  return result;
}

/* Subscribes first: that tells whether anybody else is there, before their buffers could become ours. A client that has
 * only kept its subscription after its work loses nothing. */
static void take_hold(void) {
  CUptiResult result = subscribe();
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS && shares) result = CUPTI_SUCCESS;
  if (result == CUPTI_SUCCESS) {
    result = cupti.ActivityRegisterCallbacks(buffer_requested, buffer_completed);
    registered = result == CUPTI_SUCCESS;
  }
  if (result == CUPTI_SUCCESS) put_clock_right();
  if (result == CUPTI_SUCCESS) result = enable_kinds(true);
  if (result != CUPTI_SUCCESS) let_go();
  if (result == CUPTI_SUCCESS)
    set_state(atomic_load(&worked) ? STATE_ACTIVE : STATE_WAITING, 0);
  else if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS)
    set_state(STATE_SUBSCRIBER_CONFLICT, 0);
  else
    set_state(STATE_CUPTI_ERROR, result);
}

void collect_start(void) {
  pthread_mutex_lock(&lock);
  take_hold();
  retry_at = monotonic_ns() + RETRY_NS;
  pthread_mutex_unlock(&lock);
  if (current_state() == STATE_SUBSCRIBER_CONFLICT) sender_start(); /* to say so, and to ask again */
}

/* With the lock. */
static void resume(enum pause reason) {
  if (reason == PAUSED_FOR_CLIENT) resume_at = 0;
  if (!paused || inert()) return;
  paused &= ~(int)reason;
  if (!paused) take_hold();
}

static uint64_t earlier(uint64_t one, uint64_t other) { return one < other ? one : other; }

uint64_t collect_step(uint64_t now_ns) {
  uint64_t next = UINT64_MAX;
  pthread_mutex_lock(&lock);
  if (resume_at && now_ns >= resume_at) {
    shares = true;
    resume(PAUSED_FOR_CLIENT);
  }
  if (!paused && current_state() == STATE_SUBSCRIBER_CONFLICT) {
    if (now_ns >= retry_at) {
      take_hold();
      retry_at = now_ns + RETRY_NS;
    }
    next = retry_at;
  }
  if (resume_at) next = earlier(next, resume_at);
  bool switched = false;
  if (registered) {
    struct duty duty = duty_at(now_ns);
    if ((switched = duty.on != enabled)) enable_kinds(duty.on);
    next = earlier(next, duty.until_ns);
  }
  switched = switched && !enabled;
  pthread_mutex_unlock(&lock);
  if (switched) collect_flush();
  return next;
}

void collect_flush(void) {
  enum state now = current_state();
  if (now == STATE_WAITING || now == STATE_ACTIVE) cupti.ActivityFlushAll(0);
}

void collect_pause(enum pause reason) {
  pthread_mutex_lock(&lock);
  if (!inert() && (registered || paused || current_state() == STATE_SUBSCRIBER_CONFLICT)) {
    if (!paused) let_go();
    paused |= reason;
    if (reason == PAUSED_FOR_CLIENT) resume_at = 0;
    set_state(STATE_PAUSED, 0);
  }
  pthread_mutex_unlock(&lock);
  wake_sender();
}

void collect_resume(enum pause reason) {
  pthread_mutex_lock(&lock);
  resume(reason);
  pthread_mutex_unlock(&lock);
  if (current_state() == STATE_SUBSCRIBER_CONFLICT) sender_start();
  wake_sender();
}

void collect_client_left(uint64_t wait_ns) {
  pthread_mutex_lock(&lock);
  if (paused & PAUSED_FOR_CLIENT) resume_at = monotonic_ns() + wait_ns;
  pthread_mutex_unlock(&lock);
  sender_start(); /* it is who comes back */
  wake_sender();
}

void collect_want_stamps(void) {
  pthread_mutex_lock(&lock);
  if (!wants_stamps && subscribed && !inert())
    cupti.EnableCallback(1, subscriber, DOMAIN_DRIVER_API, DRIVER_cuCtxGetCurrent);
  wants_stamps = true;
  pthread_mutex_unlock(&lock);
}
