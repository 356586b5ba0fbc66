/* A handle: CUDA opened by name, functions, launches, queues, and the busy kernel's launch. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside.h"

int64_t spanlite_enact_revision(void) { return SPANLITE_ENACT_REVISION; }

int64_t host_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void nap(int64_t ns) {
  struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  nanosleep(&time, NULL);
}

int64_t refused(struct enactor *enactor, const char *why) {
  pthread_mutex_lock(&enactor->mutex);
  snprintf(enactor->error, sizeof enactor->error, "%s", why);
  pthread_mutex_unlock(&enactor->mutex);
  return -1;
}

int64_t failed(struct enactor *enactor, const char *what, CUresult result) {
  const char *name = NULL, *text = NULL;
  char why[512];
  enactor->cuda.error_name(result, &name);
  enactor->cuda.error_text(result, &text);
  snprintf(why, sizeof why, "%s: %s (%s)", what, text ? text : "unknown", name ? name : "?");
  return refused(enactor, why);
}

static int64_t load_symbols(struct enactor *enactor, const char *libcuda) {
  enactor->library = dlopen(libcuda, RTLD_NOW | RTLD_LOCAL);
  if (!enactor->library) return refused(enactor, dlerror());
#define RESOLVE(member, symbol, arguments)                                                                        \
  *(void **)&enactor->cuda.member = dlsym(enactor->library, symbol);                                              \
  if (!enactor->cuda.member) {                                                                                    \
    char why[256];                                                                                                \
    snprintf(why, sizeof why, "%s: no %s: the driver is too old", libcuda, symbol);                               \
    return refused(enactor, why);                                                                                 \
  }
  CUDA_FUNCTIONS(RESOLVE)
#undef RESOLVE
  return 0;
}

static int64_t take_device(struct enactor *enactor, int ordinal) {
  struct cuda *cuda = &enactor->cuda;
  int count = 0;
  TRY(enactor, "cuInit", init(0));
  TRY(enactor, "cuDriverGetVersion", driver_version(&enactor->driver));
  TRY(enactor, "cuDeviceGetCount", device_count(&count));
  if (ordinal < 0 || ordinal >= count) {
    char why[64];
    snprintf(why, sizeof why, "there is no GPU %d; CUDA sees %d", ordinal, count);
    return refused(enactor, why);
  }
  TRY(enactor, "cuDeviceGet", device(&enactor->device, ordinal));
  TRY(enactor, "cuDeviceGetName", device_name(enactor->name, sizeof enactor->name, enactor->device));
  TRY(enactor, "cuDeviceGetAttribute",
      device_attribute(&enactor->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, enactor->device));
  TRY(enactor, "cuDevicePrimaryCtxRetain", retain(&enactor->context, enactor->device));
  CUresult result = cuda->set_current(enactor->context);
  return result == CUDA_SUCCESS ? 0 : failed(enactor, "cuCtxSetCurrent", result);
}

static int64_t take_memory(struct enactor *enactor) {
  const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  TRY(enactor, "cuMemHostAlloc", host_alloc((void **)&enactor->box, 64, flags));
  memset(enactor->box, 0, 64);
  TRY(enactor, "cuMemHostGetDevicePointer", host_pointer(&enactor->box_there, enactor->box, 0));
  TRY(enactor, "cuMemHostAlloc", host_alloc((void **)&enactor->copied, CELLS * sizeof(uint64_t), flags));
  TRY(enactor, "cuMemAlloc", alloc(&enactor->cells, (CELLS + 1) * sizeof(uint64_t)));
  enactor->stop_word = enactor->cells + CELLS * sizeof(uint64_t);
  TRY(enactor, "cuMemsetD8", set(enactor->cells, 0, (CELLS + 1) * sizeof(uint64_t)));
  TRY(enactor, "cuStreamCreate", stream_create(&enactor->aside, CU_STREAM_NON_BLOCKING, 0));
  enactor->due_ns = calloc(CELLS, sizeof(int64_t));
  enactor->called_ns = calloc(CELLS, sizeof(int64_t));
  enactor->start_ns = calloc(CELLS, sizeof(int64_t));
  enactor->late_ns = calloc(CELLS, sizeof(int64_t));
  enactor->rows = calloc(ROWS, sizeof(struct row));
  enactor->queues = calloc(MOST_QUEUES, sizeof(struct queue));
  const bool all = enactor->due_ns && enactor->called_ns && enactor->start_ns && enactor->late_ns && enactor->rows;
  return all && enactor->queues ? 0 : refused(enactor, "out of memory");
}

struct enactor *spanlite_enact_open(const char *libcuda, int device, char *why, int64_t size) {
  struct enactor *enactor = calloc(1, sizeof *enactor);
  if (!enactor) {
    snprintf(why, (size_t)size, "out of memory");
    return NULL;
  }
  pthread_mutex_init(&enactor->mutex, NULL);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* streams that share a connection wait for each other */
  if (load_symbols(enactor, libcuda) == 0 && take_device(enactor, device) == 0 && take_memory(enactor) == 0) return enactor;
  snprintf(why, (size_t)size, "%s", enactor->error);
  spanlite_enact_close(enactor);
  return NULL;
}

const char *spanlite_enact_error(struct enactor *enactor) {
  pthread_mutex_lock(&enactor->mutex);
  memcpy(enactor->told, enactor->error, sizeof enactor->told); /* the player's thread may write another */
  pthread_mutex_unlock(&enactor->mutex);
  return enactor->told;
}

const char *spanlite_enact_gpu(const struct enactor *enactor, int32_t *processors, int32_t *driver) {
  *processors = enactor->processors;
  *driver = enactor->driver;
  return enactor->name;
}

int64_t spanlite_enact_function(struct enactor *enactor, const char *ptx, const char *name, int32_t *registers) {
  CUmodule module;
  CUfunction function;
  TRY(enactor, name, load(&module, ptx));
  TRY(enactor, name, function(&function, module, name));
  TRY(enactor, name, function_attribute(registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  CUfunction *more = realloc(enactor->functions, (size_t)(enactor->function_count + 1) * sizeof *more);
  if (!more) return refused(enactor, "out of memory");
  enactor->functions = more;
  enactor->functions[enactor->function_count] = function;
  return enactor->function_count++;
}

int64_t spanlite_enact_resident(struct enactor *enactor, const struct launch *launch) {
  CUfunction function = enactor->functions[launch->function];
  const uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  int blocks = 0;
  if (threads == 0 || threads > 1024) return 0;
  if (enactor->cuda.set_function_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                           (int)launch->dynamic_shared) != CUDA_SUCCESS)
    return 0; /* more than a block of this GPU may have */
  TRY(enactor, "cuOccupancyMaxActiveBlocksPerMultiprocessor",
      blocks_per_sm(&blocks, function, (int)threads, launch->dynamic_shared));
  return blocks;
}

/* CUDA keeps one bound of dynamic shared memory a function: that of the launch which has most. */
static int64_t allow_shared(struct enactor *enactor) {
  for (int64_t at = 0; at < enactor->launch_count; at++) {
    const struct launch *launch = &enactor->launches[at];
    uint32_t most = 0;
    for (int64_t other = 0; other < enactor->launch_count; other++)
      if (enactor->launches[other].function == launch->function && enactor->launches[other].dynamic_shared > most)
        most = enactor->launches[other].dynamic_shared;
    if (launch->dynamic_shared != most) continue;
    TRY(enactor, "cuFuncSetAttribute", set_function_attribute(enactor->functions[launch->function],
                                                              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)most));
  }
  return 0;
}

int64_t spanlite_enact_launches(struct enactor *enactor, int64_t count, const struct launch *launches) {
  if (enactor->launches) return refused(enactor, "launches are told once");
  enactor->launches = calloc((size_t)count + 1, sizeof *launches);
  enactor->floors_ns = calloc(3 * (size_t)count + 1, sizeof *enactor->floors_ns);
  if (!enactor->launches || !enactor->floors_ns) return refused(enactor, "out of memory");
  enactor->train_floors_ns = enactor->floors_ns + count;
  enactor->least_ns = enactor->train_floors_ns + count;
  memcpy(enactor->launches, launches, (size_t)count * sizeof *launches);
  enactor->launch_count = count;
  return allow_shared(enactor);
}

int64_t new_lane(struct enactor *enactor, struct queue *queue) {
  struct lane *lane = &queue->lane[queue->lanes];
  TRY(enactor, "cuStreamCreateWithPriority", stream_create(&lane->stream, CU_STREAM_NON_BLOCKING, queue->priority));
  lane->end_ns = lane->asked_end_ns = INT64_MIN / 2;
  return queue->lanes++;
}

int64_t spanlite_enact_queue(struct enactor *enactor, int32_t priority) {
  if (enactor->plays) return refused(enactor, "queues are made before it begins");
  if (enactor->queue_count == MOST_QUEUES) return refused(enactor, "more than 128 streams");
  struct queue *queue = &enactor->queues[enactor->queue_count];
  queue->priority = priority;
  return new_lane(enactor, queue) < 0 ? -1 : enactor->queue_count++;
}

/* Cells are told apart by a tag, which is never 0: that is what unwritten ones have. */
static uint64_t tag_of(long number) { return (uint64_t)(number % ((1 << TAG_BITS) - 1)) + 1; }

void busy_parameters(struct enactor *enactor, int64_t duration_ns, long number, struct busy_parameters *out) {
  out->duration = duration_ns > 0 ? (uint64_t)duration_ns : 0;
  out->cell = enactor->cells + (uint64_t)(number % CELLS) * sizeof(uint64_t);
  out->tag = tag_of(number);
  out->stop = enactor->stop_word;
  void *pointers[] = {&out->duration, &out->cell, &out->tag, &out->stop};
  memcpy(out->pointers, pointers, sizeof pointers);
}

int64_t busy(struct enactor *enactor, const struct launch *launch, CUstream stream, int64_t duration_ns, long number) {
  struct busy_parameters parameters;
  busy_parameters(enactor, duration_ns, number, &parameters);
  TRY(enactor, "cuLaunchKernel",
      launch(enactor->functions[launch->function], launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
             launch->block[1], launch->block[2], launch->dynamic_shared, stream, parameters.pointers, NULL));
  return 0;
}

bool cell_start(uint64_t cell, long number, int64_t near_ns, int64_t *start_ns) {
  const uint64_t mask = (1ULL << TIME_BITS) - 1;
  if (cell >> TIME_BITS != tag_of(number)) return false;
  int64_t past = (int64_t)((cell - (uint64_t)near_ns) & mask); /* since near_ns, modulo 18 minutes */
  if (past >> (TIME_BITS - 1)) past -= (int64_t)mask + 1;
  *start_ns = near_ns + past;
  return true;
}

void spanlite_enact_progress(struct enactor *enactor, struct progress *progress) {
  progress->fed = atomic_load(&enactor->fed) - enactor->first;
  progress->launched = atomic_load(&enactor->launched) - enactor->first;
  progress->started = atomic_load(&enactor->started) - enactor->first;
  progress->in_trains = atomic_load(&enactor->in_trains);
}

void spanlite_enact_close(struct enactor *enactor) {
  static const uint32_t one = 1;
  if (enactor->plays) {
    atomic_store(&enactor->ending, true);
    atomic_store(&enactor->stopping, true);
    pthread_join(enactor->player, NULL);
  }
  if (enactor->context) {
    struct cuda *cuda = &enactor->cuda;
    if (enactor->aside) cuda->to_device(enactor->stop_word, &one, sizeof one, enactor->aside);
    cuda->synchronize();
    if (enactor->box) cuda->host_free(enactor->box);
    if (enactor->copied) cuda->host_free(enactor->copied);
    if (enactor->cells) cuda->free(enactor->cells);
    cuda->release(enactor->device); /* streams and modules end with the context, which nobody else of us holds */
  }
  pthread_mutex_destroy(&enactor->mutex);
  free(enactor->functions);
  free(enactor->launches);
  free(enactor->floors_ns);
  free(enactor->queues);
  free(enactor->trains);
  free(enactor->rows);
  free(enactor->due_ns);
  free(enactor->called_ns);
  free(enactor->start_ns);
  free(enactor->late_ns);
  free(enactor); /* the driver's library stays: it has threads */
}
