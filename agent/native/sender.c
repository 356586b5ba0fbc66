#include "sender.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "buffers.h"
#include "collect.h"
#include "foreign.h"
#include "link.h"
#include "losses.h"
#include "messages.h"
#include "now.h"
#include "permission.h"
#include "settings.h"
#include "state.h"
#include "windows.h"

#define MS 1000000ull

enum { LOOP_MS = 100, BACKOFF_LEAST_MS = 100, BACKOFF_MOST_MS = 5000, STATS_MS = 1000, CLOCK_MS = 60000 };

static _Atomic bool started, stopping;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished;
static bool is_finished;
static _Atomic uint64_t last_buffer_ns = UINT64_MAX; /* from then on no buffer is begun any more */

static struct {
  uint64_t flush, connect, clock, stats; /* when each is due, monotonic ns */
  uint64_t backoff;
} due;

static uint64_t earlier(uint64_t one, uint64_t other) { return one < other ? one : other; }

static void keep_connected(uint64_t now) {
  if (link_check()) {
    enum word word = link_word();
    if (word != WORD_NONE) permission_heard(word);
    if (!buffers_completed() || !messages_lack_gpus()) return;
    messages_goodbye("the GPUs are known now"); /* a HELLO is the only place to name them */
    due.connect = 0;
  }
  if (now < due.connect || !collect_has_work()) return;
  if (link_open() && messages_hello() == SENT) due.clock = 0;
  /* An agent that hangs up at every HELLO is not asked more often than one that is not there. */
  due.backoff = earlier(due.backoff ? 2 * due.backoff : BACKOFF_LEAST_MS * MS, BACKOFF_MOST_MS * MS);
  due.connect = now + due.backoff;
}

static void send_one(struct buffer *buffer) {
  if (monotonic_ns() > atomic_load(&last_buffer_ns)) {
    lose(LOST_EXIT, buffer->spans);
    return;
  }
  if (!link_is_open()) {
    lose(LOST_NO_AGENT, buffer->spans);
    return;
  }
  enum sent sent = messages_buffer(buffer);
  if (sent == SENT)
    due.backoff = 0;
  else
    lose(sent == SENT_HUNG ? LOST_HUNG : LOST_DISCONNECT, buffer->spans);
}

static void deliver(uint64_t now) {
  if (current_state() == STATE_PAUSED || collect_is_aloof())
    due.clock = 0; /* another client may have given CUPTI another clock; read it when we are back */
  else if (link_is_open() && now >= due.clock && messages_clock() == SENT)
    due.clock = now + CLOCK_MS * MS;
  messages_ranges();
  if (windows_keep_buffers()) return;
  messages_windows();
  for (struct buffer *buffer; !inert() && (buffer = take_queued());) {
    send_one(buffer);
    give_back(buffer);
  }
}

static void finish(void) {
  collect_end();
  keep_connected(monotonic_ns());
  deliver(monotonic_ns());
  messages_stats();
  messages_goodbye("the process exits");
}

static void *run(void *nothing) {
  pthread_setname_np(pthread_self(), "spanlite");
  while (!inert() && !atomic_load(&stopping)) {
    uint64_t now = monotonic_ns(), next = now + LOOP_MS * MS;
    next = earlier(next, collect_step(now));
    foreign_step(now);
    if (settings()->flush_ns && now >= due.flush) {
      if (due.flush) collect_flush();
      due.flush = now + settings()->flush_ns;
    }
    keep_connected(now);
    deliver(now);
    if (now >= due.stats) {
      messages_stats();
      due.stats = now + STATS_MS * MS;
    }
    wait_for_buffers(earlier(next, due.flush ? due.flush : next));
  }
  if (!inert()) finish();
  pthread_mutex_lock(&lock);
  is_finished = true;
  pthread_cond_signal(&finished);
  pthread_mutex_unlock(&lock);
  return nothing;
}

void sender_start(void) {
  if (atomic_load_explicit(&started, memory_order_acquire) || inert() || atomic_exchange(&started, true)) return;
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&finished, &monotonic);
  pthread_condattr_destroy(&monotonic);
  sigset_t all, before;
  sigfillset(&all);
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  for (unsigned at = 0; at < sizeof faults / sizeof *faults; at++) sigdelset(&all, faults[at]);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it: signals are the program's */
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, NULL) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void sender_finish(uint64_t most_ns) {
  if (!atomic_load(&started)) return;
  uint64_t until_ns = monotonic_ns() + most_ns;
  struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
  link_hurry(until_ns);
  atomic_store(&last_buffer_ns, until_ns - most_ns / 4); /* the rest is for the frame at hand, STATS and BYE */
  atomic_store(&stopping, true);
  wake_sender();
  pthread_mutex_lock(&lock);
  while (!is_finished && pthread_cond_timedwait(&finished, &lock, &until) == 0) {
  }
  pthread_mutex_unlock(&lock);
}
