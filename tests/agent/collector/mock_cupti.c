/* An imitation of libcupti: it fires recorded buffers through the client's callbacks, and misbehaves as it is told.
 *
 * Numbers and signatures as in cupti_activity.h and cupti_callbacks.h. What no client may do (answer a request with
 * nothing, call from the child of a fork, force a flush, finalize) is counted as a violation. */
#include "mock_cupti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void (*callback)(void *userdata, int domain, uint32_t cbid, const void *data);
typedef void (*requested)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

struct open_buffer {
  uint8_t *bytes;
  size_t size, used;
};

enum { OPEN_MOST = 4096 };

static struct {
  const char *key;
  _Atomic long value;
} values[] = {
    {"version", 130500},      /* cuptiGetVersion */
    {"subscribe_result", 0},  /* of cuptiSubscribe, besides 39 while somebody is subscribed */
    {"enable_result", 0},     /* of cuptiActivityEnable */
    {"dropped", 0},           /* told by the next cuptiActivityGetNumDroppedRecords */
    {"completed_null", 0},    /* buffers completed empty */
    {"violations", 0},   {"flushes", 0},      {"enables", 0},      {"disables", 0},
    {"registered", 0},   {"subscribed", 0},   {"calls", 0},        {"kernel_size", 0},
    {"clock_off_s", 0}, /* of the clock that was registered last */
    {"requests", 0},     {"lost", 0},         {"flush_ms", 0},     {"callbacks", 0},
    {"buffer_bytes", 0}, /* of the last one */
    {"callback_ns", 0}, /* processor time in the client's bufferCompleted */
    {"counts_always", 0}, /* calls are numbered although nobody ever listened */
    {"clocks", 0},      /* registered timestamp callbacks */
    {"withhold", 0},    /* flushes that give nothing back, as while a kernel runs that a buffer has a record of */
    {"nested", 0},      /* the next question for drops lets another thread complete a buffer meanwhile */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_buffer open_buffers[OPEN_MOST], held[OPEN_MOST];
static int open_count, held_count;
static callback subscriber;
static void *subscriber_data;
static bool context_callback, driver_callback;
static requested on_request;
static completed on_complete;
static _Atomic bool kernels_on, ever_on;
static _Atomic uint32_t correlation = 100;
static pid_t home;

static _Atomic long *value(const char *key) {
  for (size_t at = 0; at < sizeof values / sizeof *values; at++)
    if (strcmp(values[at].key, key) == 0) return &values[at].value;
  fprintf(stderr, "mock: no value %s\n", key);
  abort();
}

void mock_set(const char *key, long now) { *value(key) = now; }
long mock_get(const char *key) { return *value(key); }

static void violation(const char *what) {
  fprintf(stderr, "mock: VIOLATION %s\n", what);
  ++*value("violations");
}

static void called(void) {
  ++*value("calls");
  if (getpid() != home) violation("CUPTI was called in the child of a fork");
}

__attribute__((constructor)) static void begin(void) { home = getpid(); }

/* Bytes of a record, CUPTI 13.4 and later; before that kernels, copies and sets are shorter. */
static size_t record_size(uint32_t kind) {
  long version = mock_get("version");
  bool late = version >= 130400, twelve = version < 130000;
  switch (kind) {
    case 1: return late ? 112 : version == 24 ? 88 : 96;
    case 2: return late ? 104 : 88;
    case 3:
    case 10: {
      long size = mock_get("kernel_size");
      return size ? (size_t)size : late ? 248 : version >= 130300 ? 232 : version >= 130100 ? 224 : twelve ? 208 : 216;
    }
    case 4:
    case 5: return 40;
    case 12: return 56;
    case 38: return 56;
    case 39: return 24;
    default: return 0;
  }
}

static long thread_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

static void complete(struct open_buffer buffer) {
  if (!buffer.used) ++*value("completed_null");
  long before = thread_ns();
  if (on_complete) on_complete(NULL, 0, buffer.bytes, buffer.size, buffer.used);
  *value("callback_ns") += thread_ns() - before;
  ++*value("callbacks");
}

static bool request(struct open_buffer *buffer) {
  size_t most = 99;
  *buffer = (struct open_buffer){NULL, 0, 0};
  if (!on_request) return false;
  on_request(&buffer->bytes, &buffer->size, &most);
  ++*value("requests");
  mock_set("buffer_bytes", (long)buffer->size);
  if (!buffer->bytes) violation("a request was answered with nothing");
  if ((uintptr_t)buffer->bytes % 8) violation("a buffer is not aligned");
  if (most) violation("the number of records is limited");
  return buffer->bytes != NULL;
}

static bool take_open(struct open_buffer *buffer) {
  pthread_mutex_lock(&lock);
  bool found = open_count > 0;
  if (found) *buffer = open_buffers[--open_count];
  pthread_mutex_unlock(&lock);
  return found;
}

static void put_open(struct open_buffer buffer) {
  pthread_mutex_lock(&lock);
  if (open_count == OPEN_MOST) abort();
  open_buffers[open_count++] = buffer;
  pthread_mutex_unlock(&lock);
}

size_t mock_fire(const uint8_t *records, size_t length) {
  struct open_buffer buffer;
  size_t at = 0;
  if (!kernels_on || !on_request) {
    *value("lost") += (long)length;
    return 0;
  }
  if (!take_open(&buffer) && !request(&buffer)) return 0;
  while (at < length) {
    uint32_t kind;
    memcpy(&kind, records + at, sizeof kind);
    size_t size = record_size(kind);
    if (!size || size > length - at) size = length - at; /* garbage goes in one piece */
    if (size > buffer.size - buffer.used) {
      if (!buffer.used) break;
      complete(buffer);
      if (!request(&buffer)) return at;
      continue;
    }
    memcpy(buffer.bytes + buffer.used, records + at, size);
    buffer.used += size;
    at += size;
  }
  put_open(buffer);
  return at;
}

void mock_hold(int count) {
  for (int at = 0; at < count && held_count < OPEN_MOST; at++)
    if (request(&held[held_count])) held_count++;
}

void mock_release(void) {
  while (held_count) complete(held[--held_count]);
}

struct call {
  int site;
  const char *function;
  const void *params;
  void *result;
  const char *symbol;
  void *context;
  uint32_t context_uid;
  uint64_t *data;
  uint32_t correlation;
};

void mock_context(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  int *active = cuda ? dlsym(cuda, "mock_cuda_active") : NULL;
  if (active) *active = 1;
  if (subscriber && context_callback) subscriber(subscriber_data, 3, 1, NULL);
}

static uint32_t driver_call(uint32_t cbid) {
  /* Before kinds were on once, only calls that have a callback are numbered. */
  if (cbid != 304 && !ever_on && !mock_get("counts_always")) return correlation;
  uint32_t id = ++correlation;
  struct call call = {.site = 0, .function = "cuCtxGetCurrent", .correlation = id};
  if (cbid == 304 && subscriber && driver_callback) {
    subscriber(subscriber_data, 1, cbid, &call);
    call.site = 1;
    call.correlation = id;
    subscriber(subscriber_data, 1, cbid, &call);
  }
  return id;
}

uint32_t mock_launch(void) { return driver_call(307); }

/* ------------------------------------------------------------------------------------------- what clients call */

int cuptiGetVersion(uint32_t *version) {
  *version = (uint32_t)mock_get("version");
  return 0;
}

static uint64_t unix_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t (*current_clock)(void) = unix_clock;

int cuptiGetTimestamp(uint64_t *timestamp) {
  *timestamp = current_clock();
  return 0;
}

int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void)) {
  called();
  ++*value("clocks");
  current_clock = clock;
  mock_set("clock_off_s", labs((long)(clock() / 1000000000) - (long)(unix_clock() / 1000000000)));
  return 0;
}

int cuptiSubscribe(void **handle, callback function, void *userdata) {
  called();
  if (mock_get("subscribe_result")) return (int)mock_get("subscribe_result");
  if (subscriber) return 39;
  subscriber = function;
  subscriber_data = userdata;
  *handle = &subscriber;
  ++*value("subscribed");
  void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  uint32_t (**hook)(uint32_t) = cuda ? dlsym(cuda, "mock_cuda_hook") : NULL;
  if (hook) *hook = driver_call;
  return 0;
}

int cuptiUnsubscribe(void *handle) {
  called();
  if (handle != &subscriber || !subscriber) return 1;
  subscriber = NULL;
  context_callback = driver_callback = false;
  return 0;
}

int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t cbid) {
  called();
  if (handle != &subscriber || !subscriber) return 1;
  if (domain == 3 && cbid == 1) context_callback = enable;
  if (domain == 1 && cbid == 304) driver_callback = enable;
  return 0;
}

int cuptiActivityRegisterCallbacks(requested request_function, completed complete_function) {
  called();
  on_request = request_function;
  on_complete = complete_function;
  ++*value("registered");
  return 0;
}

int cuptiActivityEnable(int kind) {
  called();
  if (kind == 4 || kind == 5) violation("API activity was enabled");
  if (mock_get("enable_result")) return (int)mock_get("enable_result");
  ++*value("enables");
  if (kind == 10) kernels_on = ever_on = true;
  return 0;
}

int cuptiActivityDisable(int kind) {
  called();
  ++*value("disables");
  if (kind == 10) kernels_on = false;
  return 0;
}

int cuptiActivityFlushAll(uint32_t flag) {
  called();
  ++*value("flushes");
  if (flag) violation("a flush was forced");
  if (mock_get("flush_ms")) usleep((useconds_t)mock_get("flush_ms") * 1000);
  if (mock_get("withhold") > 0) {
    --*value("withhold");
    return 0;
  }
  struct open_buffer buffer;
  while (take_open(&buffer)) complete(buffer);
  return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
  uint8_t *next = buffer;
  if (*record) {
    uint32_t kind;
    memcpy(&kind, *record, sizeof kind);
    size_t size = record_size(kind);
    if (!size) return 21; /* CUPTI_ERROR_INVALID_KIND */
    next = *record + size;
  }
  if (next >= buffer + valid) return 12;
  *record = next;
  return 0;
}

#ifndef MOCK_WITHOUT_DROPPED
static void *complete_one(void *nothing) {
  struct open_buffer buffer;
  if (request(&buffer)) complete(buffer);
  return nothing;
}

/* A client that asks for drops under a lock which its callbacks take, too, would not get beyond this. */
static void nested_completion(void) {
  pthread_t other;
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 10;
  pthread_create(&other, NULL, complete_one, NULL);
  if (pthread_timedjoin_np(other, NULL, &end)) violation("a callback waits while CUPTI is asked for drops");
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
  (void)context;
  (void)stream;
  if (atomic_exchange(value("nested"), 0)) nested_completion();
  *dropped = (size_t)atomic_exchange(value("dropped"), 0);
  return 0;
}
#endif

int cuptiFinalize(void) {
  violation("CUPTI was finalized");
  return 0;
}
