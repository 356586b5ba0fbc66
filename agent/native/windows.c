#include "windows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "buffers.h"
#include "cupti.h"
#include "governor.h"
#include "losses.h"
#include "settings.h"
#include "stamps.h"

#define MS 1000000ull

enum { KEPT = 64, CHECK_MS = 100, BUSY_PER_S = 100, AFFORDABLE_MS = 5000, OFF_MOST_MS = 10000 };

enum phase {
  BEFORE,
  CLOSED,
  OPEN,
  SETTLING, /* closed, and its records are being fetched */
  FULL,
};

static struct governor governor;
static bool started;
static _Atomic int phase = BEFORE;
static uint64_t open_ns; /* CUPTI's clock */
static uint64_t due, since_ns, off_since_ns; /* begin of the phase, and of the last time with kinds off */
static uint32_t at_begin, at_end; /* where the counter stood: at the phase's begin, when the last window closed */
static uint64_t traced, traced_then, spans_then; /* launches with kinds on, and both when spans came last */
static bool away; /* no agent was there when a window was due */
static struct observed observed;
static struct plan plan;
static uint64_t affordable_ns; /* time at work within the budget, in a row */
static _Atomic bool affordable;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the ring */
static struct window ring[KEPT];
static uint64_t count;

static void enter(enum phase next, uint64_t now_ns, uint64_t for_ns) {
  atomic_store(&phase, next);
  since_ns = now_ns;
  due = now_ns + for_ns;
}

/* How many spans have come of how many launches since the last time that any came. */
static void note_spans(void) {
  uint64_t spans = buffers_spans();
  if (spans == spans_then) return;
  governor_saw_spans(&governor, spans - spans_then, traced - traced_then);
  spans_then = spans;
  traced_then = traced;
}

/* What ran while nobody listened is lost; it is no window's to stand for. */
static void note_absence(uint64_t now_ns) {
  uint32_t counter = stamps_counter();
  lose(LOST_NO_AGENT, (uint64_t)((counter - at_end - 1) * governor.spans_per_launch));
  at_end = counter;
  off_since_ns = now_ns;
  away = false;
}

/* Whether others of the same kind could be traced at this price, too. */
static void note_price(uint64_t launches, uint64_t ns) {
  if (launches * 1000 * MS < BUSY_PER_S * ns) return;
  affordable_ns = governor_residue(&governor, launches, ns) <= governor.budget ? affordable_ns + ns : 0;
  atomic_store(&affordable, affordable_ns >= AFFORDABLE_MS * MS);
}

static void switch_on(void (*kinds)(bool)) {
  cupti.GetTimestamp(&open_ns);
  kinds(true);
}

static void open_window(uint64_t now_ns, void (*kinds)(bool)) {
  if (away) note_absence(now_ns);
  observed.off_ns = now_ns - off_since_ns;
  switch_on(kinds);
  at_begin = stamps_counter();
  observed.off_launches = at_begin - at_end;
  enter(OPEN, now_ns, plan.on_ns);
}

static void keep(struct window window) {
  pthread_mutex_lock(&lock);
  ring[count++ % KEPT] = window;
  pthread_mutex_unlock(&lock);
}

/* The counter's own readings are no launches: one at each end. A window in which nothing was launched stands for
 * nothing; what ran before it is the next one's. */
static bool keep_window(uint32_t last) {
  uint32_t inside = last - at_begin - 1, launched = inside + (at_begin - at_end - 1);
  traced += inside;
  if (inside) keep((struct window){open_ns, launched, inside, MODE_DUTY_CYCLE, 0});
  return inside;
}

static void close_window(uint64_t now_ns, void (*kinds)(bool)) {
  uint32_t last = stamps_counter();
  observed.on_ns = now_ns - since_ns;
  observed.on_launches = last - at_begin;
  if (!plan.full) kinds(false);
  if (!keep_window(last)) return;
  at_end = last;
  off_since_ns = now_ns;
}

static void begin_full(uint64_t now_ns) {
  cupti.GetTimestamp(&open_ns);
  keep((struct window){open_ns, 1, 1, MODE_FULL, 0});
  at_begin = stamps_counter();
  enter(FULL, now_ns, CHECK_MS * MS);
}

static void begin(uint64_t now_ns, void (*kinds)(bool)) {
  switch_on(kinds);
  at_begin = stamps_counter();
  if (!at_begin) { /* nobody tells the counter, so nobody could tell what tracing costs */
    kinds(false);
    enter(BEFORE, now_ns, OFF_MOST_MS * MS);
    return;
  }
  at_end = at_begin - 1;
  spans_then = buffers_spans();
  if (!settings()->fixed) {
    begin_full(now_ns);
    return;
  }
  plan = (struct plan){false, settings()->duty_on_ns, settings()->duty_period_ns - settings()->duty_on_ns};
  enter(OPEN, now_ns, plan.on_ns);
}

static void check_full(uint64_t now_ns, void (*kinds)(bool), bool *flush) {
  uint32_t counter = stamps_counter();
  uint64_t launches = counter - at_begin - 1, ns = now_ns - since_ns;
  traced += launches;
  note_spans();
  note_price(launches, ns);
  if (governor_affords_full(&governor, launches, ns)) {
    *flush = launches && traced_then == 0; /* that a launch is one of a graph shows only in what comes of it */
    at_begin = counter;
    enter(FULL, now_ns, CHECK_MS * MS);
    return;
  }
  kinds(false);
  *flush = true;
  observed = (struct observed){ns, launches, 0, 0};
  at_end = counter;
  off_since_ns = now_ns;
  enter(SETTLING, now_ns, 0);
}

static void settle(uint64_t now_ns) {
  note_spans();
  note_price(observed.on_launches + observed.off_launches, observed.on_ns + observed.off_ns);
  if (!settings()->fixed) plan = governor_plan(&governor, observed);
  enter(CLOSED, now_ns, governor_jitter(&governor, plan.off_ns));
}

uint64_t windows_step(uint64_t now_ns, bool connected, void (*kinds)(bool), bool *flush) {
  if (!started) {
    started = true;
    governor_start(&governor, settings()->budget, now_ns ^ (uint64_t)getpid() << 32);
    enter(BEFORE, now_ns, CHECK_MS * MS); /* the context may be being made at this very moment */
  }
  int now_in = atomic_load(&phase);
  if (now_in == OPEN && buffers_crowded()) due = now_ns;
  if (now_ns < due) return due;
  switch (now_in) {
    case BEFORE: begin(now_ns, kinds); break;
    case CLOSED:
      if (connected)
        open_window(now_ns, kinds);
      else
        away = true, due = now_ns + CHECK_MS * MS;
      break;
    case OPEN:
      close_window(now_ns, kinds);
      if (plan.full) {
        begin_full(now_ns);
      } else {
        *flush = true;
        enter(SETTLING, now_ns, 0);
      }
      break;
    case SETTLING: settle(now_ns); break;
    case FULL: check_full(now_ns, kinds, flush); break;
  }
  return due;
}

void windows_abandon(void) {
  if (atomic_load(&phase) == OPEN) keep_window(stamps_counter());
  atomic_store(&phase, BEFORE);
  due = 0;
}

void windows_end(void) {
  int now_in = atomic_load(&phase);
  if (now_in == CLOSED || now_in == SETTLING)
    lose(LOST_EXIT, (uint64_t)((stamps_counter() - at_end - 1) * governor.spans_per_launch));
  windows_abandon();
}

bool windows_keep_buffers(void) { return atomic_load(&phase) == OPEN; }

uint64_t windows_count(void) {
  pthread_mutex_lock(&lock);
  uint64_t now = count;
  pthread_mutex_unlock(&lock);
  return now;
}

uint32_t windows_take(uint64_t *next, struct window *into, uint32_t most) {
  uint32_t taken = 0;
  pthread_mutex_lock(&lock);
  if (*next + KEPT < count) *next = count - KEPT;
  while (*next < count && taken < most) into[taken++] = ring[(*next)++ % KEPT];
  pthread_mutex_unlock(&lock);
  return taken;
}

uint32_t windows_mode(void) {
  int now_in = atomic_load(&phase);
  return now_in == FULL ? MODE_FULL : now_in == BEFORE ? MODE_NONE : MODE_DUTY_CYCLE;
}

bool windows_affordable(void) { return atomic_load(&affordable); }

uint64_t windows_traced(void) { return traced; }
