#include "collect.h"

#include <pthread.h>
#include <stdatomic.h>

#include "buffers.h"
#include "cupti.h"
#include "gpus.h"
#include "link.h"
#include "losses.h"
#include "now.h"
#include "permission.h"
#include "sender.h"
#include "settings.h"
#include "stamps.h"
#include "state.h"
#include "windows.h"

#define RETRY_NS (10 * 1000000000ull)
#define DOUBT_NS (5 * 1000000000ull)
#define LOOK_NS 100000000ull

/* Kinds with a span each, none of API calls: those cost most, and CUPTI never forgets that they were on. */
static const int kinds[] = {KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMSET};

/* Held while CUPTI is told what to do. No callback of CUPTI takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_SubscriberHandle subscriber;
static bool subscribed, registered, enabled, shares;
static int paused; /* bits of enum pause */
static uint64_t retry_at, resume_at;
static _Atomic bool worked;
static _Atomic bool aloof; /* CUPTI is not touched yet: permission.h */
static uint64_t born, at_work; /* monotonic */

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
  if (current_state() == STATE_WAITING && !atomic_load(&aloof)) set_state(STATE_ACTIVE, 0);
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

/* Whether kinds are on for good from the start, whatever that costs. */
static bool always_on(void) { return settings()->budget == 0 && !settings()->fixed; }

static uint64_t unix_clock(void) { return (uint64_t)clock_ns(CLOCK_REALTIME); }

/* A client may have given CUPTI a clock of its own (torch.profiler: the processor's ticks), which outlives it and cannot
 * be taken back, only replaced. Unix time is what CUPTI's own clock tells. Not where nobody was before us: registering a
 * clock spoils the first records of some releases. */
static void put_clock_right(void) {
  if (shares && cupti.ActivityRegisterTimestampCallback) cupti.ActivityRegisterTimestampCallback(unix_clock);
}

static void let_go(void) {
  if (subscribed && !always_on()) windows_abandon();
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
  if (result == CUPTI_SUCCESS) result = cupti.EnableCallback(1, subscriber, DOMAIN_DRIVER_API, DRIVER_cuCtxGetCurrent);
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
  /* With a budget, later: kinds that were on before there was a context slow CUDA graphs down even when they are off.
   * Without a subscription nobody tells the counter, which a budget needs. */
  if (result == CUPTI_SUCCESS && (always_on() || !subscribed)) result = enable_kinds(true);
  if (result != CUPTI_SUCCESS) let_go();
  if (result == CUPTI_SUCCESS)
    set_state(atomic_load(&worked) ? STATE_ACTIVE : STATE_WAITING, 0);
  else if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS)
    set_state(STATE_SUBSCRIBER_CONFLICT, 0);
  else
    set_state(STATE_CUPTI_ERROR, result);
}

void collect_start(void) {
  born = monotonic_ns();
  if (collect_asks()) {
    atomic_store(&aloof, true);
    stamps_want(false);
    set_state(STATE_WAITING, 0);
    sender_start(); /* nobody will tell of a context: it has to look */
    return;
  }
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
  if (!paused && !atomic_load(&aloof)) take_hold();
}

static uint64_t earlier(uint64_t one, uint64_t other) { return one < other ? one : other; }

static void switch_kinds(bool on) { enable_kinds(on); }

bool collect_has_work(void) {
  if (!atomic_load(&aloof) || atomic_load(&worked)) return true;
  /* A program may make contexts without the primary one: the benefit of the doubt, after a while. */
  if (!gpus_in_use() && monotonic_ns() - born < DOUBT_NS) return false;
  atomic_store(&worked, true);
  return true;
}

/* With the lock. A context that is made while kinds are on slows its CUDA graphs down for good, on or off: each is given
 * some time, and so are those that other GPUs get after it. */
static void come_near(uint64_t now_ns) {
  static int contexts;
  if (!atomic_load(&worked)) return;
  int now = gpus_in_use();
  if (!at_work || now != contexts) at_work = now_ns;
  contexts = now;
  if (now_ns - at_work < settings()->settle_ns) return;
  if (permission_given(now_ns, link_is_open())) {
    atomic_store(&aloof, false);
    stamps_want(true);
    take_hold();
    retry_at = now_ns + RETRY_NS;
  } else {
    set_state(permission_refused() ? STATE_RESTING : STATE_WAITING, 0);
  }
}

static uint64_t launched(void) { return always_on() ? stamps_counter() : windows_traced(); }

/* With the lock. Some pairs of CUPTI and driver, and some tools before us, leave it without a word: launches, and no
 * record of any. */
static void look_for_records(uint64_t now_ns) {
  enum { MANY = 1000 };
  static uint64_t looked_at, came_at, spans_then, launched_then;
  if (now_ns - looked_at < LOOK_NS || !subscribed) return;
  looked_at = now_ns;
  uint64_t spans = buffers_spans();
  if (spans != spans_then || !came_at) {
    if (current_state() == STATE_NO_RECORDS) set_state(STATE_ACTIVE, 0);
    spans_then = spans;
    launched_then = launched();
    came_at = now_ns;
  } else if (current_state() == STATE_ACTIVE && now_ns - came_at >= settings()->no_records_ns &&
             launched() - launched_then >= MANY) {
    set_state(STATE_NO_RECORDS, 0);
  }
}

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
  bool flush = false;
  if (atomic_load(&aloof)) {
    if (!paused) come_near(now_ns);
    next = earlier(next, now_ns + LOOK_NS);
  } else if (registered && subscribed && !always_on() && atomic_load(&worked)) {
    next = earlier(next, windows_step(now_ns, link_is_open(), switch_kinds, &flush));
  }
  look_for_records(now_ns);
  pthread_mutex_unlock(&lock);
  if (flush) collect_flush();
  return next;
}

bool collect_asks(void) { return settings()->budget != 0 && !settings()->fixed; }

bool collect_is_aloof(void) { return atomic_load(&aloof); }

uint32_t collect_mode(void) { return always_on() ? MODE_FULL : windows_mode(); }

void collect_end(void) {
  pthread_mutex_lock(&lock);
  if (registered && subscribed && !always_on()) windows_end();
  pthread_mutex_unlock(&lock);
  collect_flush();
  if (current_state() == STATE_ACTIVE && !collect_is_aloof()) lose(LOST_EXIT, buffers_unreturned(stamps_counter()));
}

void collect_flush(void) {
  enum state now = current_state();
  if (!atomic_load(&aloof) && (now == STATE_WAITING || now == STATE_ACTIVE || now == STATE_NO_RECORDS))
    cupti.ActivityFlushAll(0);
}

void collect_pause(enum pause reason) {
  pthread_mutex_lock(&lock);
  if (!inert() && (registered || paused || atomic_load(&aloof) || current_state() == STATE_SUBSCRIBER_CONFLICT)) {
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
