/* A stream of the imitated GPU: a thread carries out its operations, one after the other. */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "mock_cuda.h"

enum { SLICE_NS = 500000, EAGER_NS = 20000 };
static const uint64_t TIME_MASK = (1ULL << 40) - 1;

int64_t mock_host_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t gpu_time(int64_t host_ns) {
  const int64_t since = host_ns - mock.from_ns;
  const int64_t time = host_ns + mock.offset + since / 1000000 * mock.drift + since % 1000000 * mock.drift / 1000000;
  return (uint64_t)time / TICK * TICK;
}

static bool dropping(struct CUstream_st *stream) {
  return __atomic_load_n(&mock_error, __ATOMIC_ACQUIRE) || __atomic_load_n(&stream->ending, __ATOMIC_ACQUIRE);
}

static void nap(int64_t ns) {
  struct timespec time = {.tv_sec = 0, .tv_nsec = ns};
  nanosleep(&time, NULL);
}

/* Until that time, the end of the stream, or the stop; when it was. */
static int64_t pass(struct CUstream_st *stream, int64_t until_ns, const uint32_t *stop) {
  for (;;) {
    const int64_t now_ns = mock_host_ns();
    if (now_ns >= until_ns) return until_ns;
    if (dropping(stream) || (stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE))) return now_ns;
    nap(until_ns - now_ns < SLICE_NS ? until_ns - now_ns : SLICE_NS);
  }
}

static int64_t later(int64_t one, int64_t other) { return one > other ? one : other; }

static void keep(struct CUstream_st *stream, const struct operation *operation, const struct call *call, int64_t start_ns,
                 int64_t end_ns) {
  if (stream->count == stream->room_for) {
    stream->room_for = stream->room_for ? 2 * stream->room_for : 256;
    stream->records = realloc(stream->records, stream->room_for * sizeof *stream->records);
    if (!stream->records) abort();
  }
  struct record *record = &stream->records[stream->count++];
  *record = (struct record){.stream = stream->number,
                            .priority = stream->priority,
                            .dynamic_shared = call->dynamic_shared,
                            .place = operation->kind == TRAIN ? (uint32_t)(call - operation->calls) + 1 : 0,
                            .tag = (int64_t)call->tag,
                            .duration = (int64_t)call->duration,
                            .queued = operation->queued_ns,
                            .start = start_ns,
                            .end = end_ns,
                            .gpu_start = (int64_t)gpu_time(start_ns),
                            .gpu_end = (int64_t)gpu_time(end_ns)};
  memcpy(record->name, call->function->name, sizeof record->name);
  memcpy(record->grid, call->grid, sizeof record->grid);
  memcpy(record->block, call->block, sizeof record->block);
}

/* Writes when it began, and is busy until its time is over by the GPU's timer. */
static void kernel(struct CUstream_st *stream, const struct operation *operation, const struct call *call, int64_t start_ns) {
  const int64_t slow = __atomic_load_n(&mock.slow, __ATOMIC_RELAXED), asked = (int64_t)call->duration;
  const int64_t lasts = asked / 1000 * slow + asked % 1000 * slow / 1000;
  const int64_t lasts_ns = lasts - lasts / (1000000 + mock.drift) * mock.drift + call->floor;
  if (__atomic_fetch_sub(&mock.faulty, 1, __ATOMIC_RELAXED) <= 0) {
    __atomic_store_n(&mock_error, CUDA_ERROR_ILLEGAL_ADDRESS, __ATOMIC_RELEASE);
    return;
  }
  pass(stream, start_ns, NULL);
  __atomic_store_n(call->cell, call->tag << 40 | (gpu_time(start_ns) & TIME_MASK), __ATOMIC_RELEASE);
  stream->free_ns = later(start_ns, pass(stream, start_ns + lasts_ns, call->stop));
  keep(stream, operation, call, start_ns, stream->free_ns);
}

static void train(struct CUstream_st *stream, const struct operation *operation) {
  struct CUgraphExec_st *train = operation->train;
  while (__atomic_load_n(&train->done, __ATOMIC_ACQUIRE) != operation->turn && !dropping(stream)) nap(20000);
  int64_t start_ns = later(later(stream->free_ns, train->free_ns) + mock.gap, operation->queued_ns + mock.train_launch);
  for (int at = 0; at < operation->count && !dropping(stream); at++) {
    kernel(stream, operation, &operation->calls[at], start_ns);
    start_ns = stream->free_ns + mock.train_gap;
  }
  train->free_ns = stream->free_ns;
  __atomic_store_n(&train->done, operation->turn + 1, __ATOMIC_RELEASE);
}

/* Answers each question with the time; gives up after 4 s without one. */
static void echo(struct CUstream_st *stream, const struct operation *operation) {
  uint32_t *box = operation->box;
  for (uint32_t round = 1; round <= operation->rounds; round++) {
    const int64_t from_ns = mock_host_ns();
    while (__atomic_load_n(&box[0], __ATOMIC_ACQUIRE) != round) {
      const int64_t waited_ns = mock_host_ns() - from_ns;
      if (waited_ns > 4000000000 || dropping(stream)) return;
      if (waited_ns > EAGER_NS) nap(1); /* or else the host's thread may be kept from asking */
    }
    __atomic_store_n((uint64_t *)&box[2], gpu_time(mock_host_ns()), __ATOMIC_RELAXED);
    __atomic_store_n(&box[4], round, __ATOMIC_RELEASE);
  }
  stream->free_ns = mock_host_ns();
}

/* Word by word, as the device does: kernels may be writing them. */
static void copy(void *to, const void *from, size_t size) {
  if (size % sizeof(uint64_t) == 0 && ((uintptr_t)to | (uintptr_t)from) % sizeof(uint64_t) == 0)
    for (size_t at = 0; at < size / sizeof(uint64_t); at++)
      ((uint64_t *)to)[at] = __atomic_load_n((const uint64_t *)from + at, __ATOMIC_ACQUIRE);
  else
    memcpy(to, from, size);
}

static void carry_out(struct CUstream_st *stream, const struct operation *operation) {
  switch (operation->kind) {
    case KERNEL:
      kernel(stream, operation, &operation->call, later(stream->free_ns + mock.gap, operation->queued_ns + mock.launch));
      return;
    case TRAIN: train(stream, operation); return;
    case ECHO: echo(stream, operation); return;
    case COPY_OUT: copy(operation->to, operation->from, operation->size); return;
    case COPY_IN:
      if (operation->size == sizeof(uint32_t))
        __atomic_store_n((uint32_t *)operation->to, *(const uint32_t *)operation->held, __ATOMIC_RELEASE);
      else
        memcpy(operation->to, operation->held, operation->size);
  }
}

static void *work(void *argument) {
  struct CUstream_st *stream = argument;
  prctl(PR_SET_TIMERSLACK, 1);
  pthread_mutex_lock(&stream->lock);
  for (;;) {
    while (stream->done == stream->put && !stream->ending) pthread_cond_wait(&stream->work, &stream->lock);
    if (stream->done == stream->put) break;
    const struct operation *operation = &stream->operations[stream->done % QUEUED];
    pthread_mutex_unlock(&stream->lock);
    if (!dropping(stream)) carry_out(stream, operation);
    free(operation->calls);
    pthread_mutex_lock(&stream->lock);
    stream->done++;
    pthread_cond_broadcast(&stream->room);
  }
  pthread_mutex_unlock(&stream->lock);
  return NULL;
}

struct CUstream_st *mock_stream(int number, int priority) {
  struct CUstream_st *stream = calloc(1, sizeof *stream);
  if (!stream) return NULL;
  stream->number = number;
  stream->priority = priority;
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->work, NULL);
  pthread_cond_init(&stream->room, NULL);
  if (pthread_create(&stream->worker, NULL, work, stream)) {
    free(stream);
    return NULL;
  }
  return stream;
}

CUresult mock_put(struct CUstream_st *stream, const struct operation *operation) {
  pthread_mutex_lock(&stream->lock);
  while (stream->put - stream->done == QUEUED) pthread_cond_wait(&stream->room, &stream->lock);
  struct operation *place = &stream->operations[stream->put++ % QUEUED];
  *place = *operation;
  place->queued_ns = mock_host_ns();
  pthread_cond_signal(&stream->work);
  pthread_mutex_unlock(&stream->lock);
  return __atomic_load_n(&mock_error, __ATOMIC_ACQUIRE);
}

bool mock_idle(struct CUstream_st *stream) {
  pthread_mutex_lock(&stream->lock);
  const bool idle = stream->done == stream->put;
  pthread_mutex_unlock(&stream->lock);
  return idle;
}

void mock_finish(struct CUstream_st *stream) {
  pthread_mutex_lock(&stream->lock);
  const long put = stream->put;
  while (stream->done < put) pthread_cond_wait(&stream->room, &stream->lock);
  pthread_mutex_unlock(&stream->lock);
}

void mock_end(struct CUstream_st *stream) {
  pthread_mutex_lock(&stream->lock);
  __atomic_store_n(&stream->ending, true, __ATOMIC_RELEASE);
  pthread_cond_signal(&stream->work);
  pthread_mutex_unlock(&stream->lock);
  pthread_join(stream->worker, NULL);
  pthread_mutex_destroy(&stream->lock);
  pthread_cond_destroy(&stream->work);
  pthread_cond_destroy(&stream->room);
}
