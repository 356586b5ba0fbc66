#include "buffers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "collect.h"
#include "cupti.h"
#include "losses.h"
#include "settings.h"
#include "state.h"
#include "walk.h"

enum { POOL_MOST = 4096, SCRATCH = 32, SCRATCH_BYTES = 64 << 10, FRESH_MOST = 128 };

struct names kernel_names;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held for microseconds, never while CUPTI is called */
static pthread_cond_t queued;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct buffer pool[POOL_MOST];
static size_t pool_size, buffer_bytes;
static uint8_t *pool_memory, *scratch_memory; /* the last scratch is shared by all requests that find nothing else */
static struct buffer *free_list, *queue_head, **queue_tail = &queue_head;
static uint64_t scratch_taken; /* bit by scratch */
static uint32_t next_ticket = 1;
static bool woken;
static _Atomic uint64_t requested, completed, spans_completed;
static _Atomic uint32_t newest; /* correlation id of the last kernel that came */
static _Atomic size_t queue_length;

static void set_up(void) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&queued, &monotonic);
  pthread_condattr_destroy(&monotonic);
  buffer_bytes = settings()->buffer_bytes;
  size_t wanted = settings()->pool_bytes / buffer_bytes;
  wanted = wanted < 2 ? 2 : wanted > POOL_MOST ? POOL_MOST : wanted;
  const size_t scratch_bytes = (SCRATCH + 1) * (size_t)SCRATCH_BYTES;
  uint8_t *memory = mmap(NULL, wanted * buffer_bytes + scratch_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return; /* requests are then answered with nothing, which is all that is left */
  scratch_memory = memory;
  pool_memory = memory + scratch_bytes;
  pool_size = wanted;
  for (size_t at = wanted; at-- > 0;) {
    pool[at].bytes = pool_memory + at * buffer_bytes;
    pool[at].next = free_list;
    free_list = &pool[at];
  }
}

static struct buffer *pop_queue(void) {
  struct buffer *oldest = queue_head;
  if (!oldest) return NULL;
  queue_head = oldest->next;
  if (!queue_head) queue_tail = &queue_head;
  atomic_fetch_sub_explicit(&queue_length, 1, memory_order_relaxed);
  return oldest;
}

void buffer_requested(uint8_t **bytes, size_t *size, size_t *max_records) {
  pthread_once(&once, set_up);
  *max_records = 0; /* as many as fit */
  *size = scratch_memory ? SCRATCH_BYTES : 0;
  *bytes = scratch_memory ? scratch_memory + SCRATCH * (size_t)SCRATCH_BYTES : NULL;
  atomic_fetch_add_explicit(&requested, 1, memory_order_relaxed);
  if (inert() || !scratch_memory) return; /* the lock may be held by a thread that this process does not have */
  uint64_t spans = 0;
  pthread_mutex_lock(&lock);
  struct buffer *given = free_list;
  if (given) {
    free_list = given->next;
  } else if ((given = pop_queue())) {
    spans = given->spans;
  }
  if (given) {
    *bytes = given->bytes;
    *size = buffer_bytes;
  } else if (~scratch_taken << (64 - SCRATCH)) {
    int which = __builtin_ctzll(~scratch_taken);
    scratch_taken |= 1ull << which;
    *bytes = scratch_memory + (size_t)which * SCRATCH_BYTES;
  }
  pthread_mutex_unlock(&lock);
  lose(LOST_QUEUE, spans);
  collect_saw_work();
}

/* Names that the index does not have yet, or has with another text. */
struct fresh {
  const char *names[FRESH_MOST];
  uint32_t count;
};

static bool is_known(uint64_t pointer, uint32_t length, uint64_t hash) {
  const struct name *there = names_find(&kernel_names, pointer);
  return there && there->length == length && there->hash == hash;
}

static void add_fresh(struct fresh *fresh, uint32_t ticket) {
  for (uint32_t at = 0; at < fresh->count; at++) {
    const char *text = fresh->names[at];
    uint32_t length = name_length(text);
    uint64_t hash = name_hash(text, length);
    if (!is_known((uintptr_t)text, length, hash))
      names_add(&kernel_names, (uintptr_t)text, (uintptr_t)text, text, length, hash, ticket);
  }
  fresh->count = 0;
}

static void note_name(void *context, const char *name) {
  if (!name) return;
  struct fresh *fresh = context;
  uint32_t length = name_length(name);
  if (is_known((uintptr_t)name, length, name_hash(name, length))) return;
  if (fresh->count == FRESH_MOST) {
    pthread_mutex_lock(&lock);
    add_fresh(fresh, next_ticket);
    pthread_mutex_unlock(&lock);
  }
  fresh->names[fresh->count++] = name;
}

static void count_only(void *context, const char *name) {
  (void)context;
  (void)name;
}

/* Bytes behind the whole records are none: how many spans they were meant to be can only be guessed. */
static void count_broken(size_t bytes) {
  uint32_t size = record_size(KIND_CONCURRENT_KERNEL);
  if (!size) size = 208; /* CUpti_ActivityKernel9, the shortest */
  lose(LOST_BROKEN, (bytes + size - 1) / size);
}

static void complete_scratch(uint8_t *bytes, size_t valid) {
  size_t which = (size_t)(bytes - scratch_memory) / SCRATCH_BYTES;
  if (which == SCRATCH) { /* several wrote into it at once */
    count_broken(valid);
    return;
  }
  struct walked found = walk(bytes, valid, count_only, NULL);
  lose(LOST_POOL, found.spans);
  count_broken(valid - found.whole);
  pthread_mutex_lock(&lock);
  scratch_taken &= ~(1ull << which);
  pthread_mutex_unlock(&lock);
}

static void complete_pooled(struct buffer *buffer, size_t valid) {
  struct fresh fresh = {.count = 0};
  struct walked found = walk(buffer->bytes, valid, note_name, &fresh);
  count_broken(valid - found.whole);
  pthread_mutex_lock(&lock);
  add_fresh(&fresh, next_ticket);
  if (found.correlation && (int32_t)(found.correlation - newest) > 0) newest = found.correlation;
  buffer->valid = found.whole;
  buffer->spans = found.spans;
  if (found.whole) {
    buffer->ticket = next_ticket++;
    buffer->next = NULL;
    *queue_tail = buffer;
    queue_tail = &buffer->next;
    atomic_fetch_add_explicit(&queue_length, 1, memory_order_release);
    atomic_fetch_add_explicit(&spans_completed, found.spans, memory_order_relaxed);
    pthread_cond_signal(&queued);
  } else {
    buffer->next = free_list;
    free_list = buffer;
  }
  pthread_mutex_unlock(&lock);
}

void buffer_completed(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size, size_t valid) {
  if (!bytes || !pool_memory || inert()) return; /* what a dying process holds is left where it is */
  atomic_fetch_add_explicit(&completed, 1, memory_order_relaxed);
  size_t dropped = 0;
  if (cupti.ActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) lose(LOST_CUPTI, dropped);
  if (valid > size) valid = size;
  size_t at = (size_t)(bytes - pool_memory) / buffer_bytes;
  if (bytes >= pool_memory && at < pool_size && bytes == pool[at].bytes) {
    complete_pooled(&pool[at], valid);
  } else if (bytes >= scratch_memory && bytes < pool_memory) {
    complete_scratch(bytes, valid);
  } /* else it is another tool's, whose callbacks ours have replaced: not ours to touch */
}

struct buffer *take_queued(void) {
  pthread_once(&once, set_up);
  pthread_mutex_lock(&lock);
  struct buffer *taken = pop_queue();
  pthread_mutex_unlock(&lock);
  return taken;
}

void give_back(struct buffer *buffer) {
  pthread_mutex_lock(&lock);
  buffer->next = free_list;
  free_list = buffer;
  pthread_mutex_unlock(&lock);
}

void wait_for_buffers(uint64_t until_ns) {
  pthread_once(&once, set_up);
  struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
  pthread_mutex_lock(&lock);
  while (!queue_head && !woken && pthread_cond_timedwait(&queued, &lock, &until) == 0) {
  }
  woken = false;
  pthread_mutex_unlock(&lock);
}

void wake_sender(void) {
  pthread_once(&once, set_up);
  pthread_mutex_lock(&lock);
  woken = true;
  pthread_cond_signal(&queued);
  pthread_mutex_unlock(&lock);
}

uint64_t buffers_completed(void) { return atomic_load_explicit(&completed, memory_order_relaxed); }

uint64_t buffers_unreturned(uint32_t counter) {
  enum { TOO_FEW = 64 };
  uint32_t last = newest, calls = counter - last;
  if (!counter || (int32_t)calls <= TOO_FEW || atomic_load(&requested) == atomic_load(&completed)) return 0;
  double spans_per_call = last ? (double)buffers_spans() / last : 1;
  return (uint64_t)(calls * spans_per_call);
}

uint64_t buffers_spans(void) { return atomic_load_explicit(&spans_completed, memory_order_relaxed); }

bool buffers_crowded(void) {
  size_t length = atomic_load_explicit(&queue_length, memory_order_acquire);
  return length && 2 * length > pool_size;
}
