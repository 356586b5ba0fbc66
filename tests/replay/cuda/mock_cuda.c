/* An imitation of the functions of libcuda that kernels are re-enacted with: one GPU of 132 multiprocessors, in real time.

   Device memory is the process's. With -DOLD_DRIVER it lacks a function. See mock_cuda.h for its settings. */
#include "mock_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum {
  PROCESSORS = 132,
  THREADS_A_SM = 2048,
  BLOCKS_A_SM = 32,
  REGISTERS_A_SM = 65536,
  REGISTERS_A_WARP = 256, /* they are given out in such numbers */
  SHARED_A_SM = 227 * 1024,
  SHARED_UNASKED = 48 * 1024,
  MOST_KEPT = 1 << 16,
};

struct settings mock;
int mock_error;
static struct CUstream_st *streams[MOST_STREAMS];
static void *kept[MOST_KEPT]; /* modules, graphs and their nodes: they end with the context */
static int stream_count, kept_count, holders;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool current;

static int64_t setting(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoll(text, NULL, 10) : otherwise;
}

/* What most functions return first: the context's error, or that this thread has none. */
static CUresult standing(void) {
  return current ? __atomic_load_n(&mock_error, __ATOMIC_ACQUIRE) : CUDA_ERROR_INVALID_CONTEXT;
}

#define STAND()                            \
  do {                                     \
    CUresult standing_ = standing();       \
    if (standing_) return standing_;       \
  } while (0)

EXPORT void mock_set(const char *name, int64_t value) {
  int64_t *set = strcmp(name, "slow") == 0 ? &mock.slow : strcmp(name, "refused") == 0 ? &mock.refused : &mock.faulty;
  __atomic_store_n(set, value, __ATOMIC_RELAXED);
}

EXPORT CUresult cuInit(unsigned flags) {
  const CUresult result = (CUresult)setting("MOCK_INIT", CUDA_SUCCESS);
  mock.devices = setting("MOCK_DEVICES", 1);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  return result ? result : mock.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
  *count = (int)mock.devices;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return ordinal < mock.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  snprintf(name, (size_t)size, "Mock %d", device);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  (void)device;
  if (attribute != CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) return CUDA_ERROR_INVALID_VALUE;
  *value = PROCESSORS;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  (void)device;
  pthread_mutex_lock(&lock);
  if (holders++ == 0) {
    mock.floor = setting("MOCK_FLOOR", 1600);
    mock.wave = setting("MOCK_WAVE", 320);
    mock.gap = setting("MOCK_GAP", 640);
    mock.launch = setting("MOCK_LAUNCH", 2560);
    mock.train_launch = setting("MOCK_TRAIN_LAUNCH", 5120);
    mock.train_gap = setting("MOCK_TRAIN_GAP", 320);
    mock.offset = setting("MOCK_OFFSET", 0);
    mock.drift = setting("MOCK_DRIFT", 0);
    mock.from_ns = mock_host_ns();
    mock_set("slow", 1000);
    mock_set("refused", INT64_MAX);
    mock_set("faulty", INT64_MAX);
    __atomic_store_n(&mock_error, CUDA_SUCCESS, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  *context = (CUcontext)&mock;
  return CUDA_SUCCESS;
}

static void write_log(const char *path) {
  FILE *file = path ? fopen(path, "wb") : NULL;
  for (int at = 0; file && at < stream_count; at++)
    if (fwrite(streams[at]->records, sizeof(struct record), streams[at]->count, file) != streams[at]->count) abort();
  if (file && fclose(file)) abort();
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  (void)device;
  pthread_mutex_lock(&lock);
  if (--holders == 0) {
    for (int at = 0; at < stream_count; at++) mock_end(streams[at]);
    write_log(getenv("MOCK_LOG"));
    for (int at = 0; at < stream_count; at++) {
      free(streams[at]->records);
      free(streams[at]);
    }
    for (int at = 0; at < kept_count; at++) free(kept[at]);
    stream_count = kept_count = 0;
  }
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  current = context != NULL;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) {
  STAND();
  for (int at = 0; at < stream_count; at++) mock_finish(streams[at]);
  return standing();
}

static void *keep(size_t size) {
  void *memory = kept_count < MOST_KEPT ? calloc(1, size) : NULL;
  if (memory) kept[kept_count++] = memory;
  return memory;
}

/* Keeps of the text what the driver would tell of the kernel in it. */
EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  STAND();
  const char *entry = strstr(image, ".entry "), *most = strstr(image, ".maxnreg "), *held = strstr(image, "held[");
  struct CUfunc_st found = {.registers = 16, .dynamic_shared = SHARED_UNASKED};
  if (strncmp(image, ".version ", 9) || !entry || sscanf(entry, ".entry %63[A-Za-z0-9_$]", found.name) != 1)
    return CUDA_ERROR_INVALID_PTX;
  if (most) found.registers = atoi(most + strlen(".maxnreg "));
  if (held) found.static_shared = atoi(held + strlen("held["));
  struct CUfunc_st *function = keep(sizeof found);
  if (function) *function = found;
  *module = (CUmodule)function;
  return function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  STAND();
  *function = (CUfunction)module;
  return strncmp((*function)->name, name, sizeof(*function)->name - 1) ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  STAND();
  *value = function->registers;
  return attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  STAND();
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0) return CUDA_ERROR_INVALID_VALUE;
  if (value + function->static_shared > SHARED_A_SM) return CUDA_ERROR_INVALID_VALUE;
  function->dynamic_shared = value;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                            size_t dynamic_shared) {
  STAND();
  const int warps = (block_size + 31) / 32;
  const int registers = warps * ((function->registers * 32 + REGISTERS_A_WARP - 1) / REGISTERS_A_WARP * REGISTERS_A_WARP);
  const int shared = function->static_shared + (int)dynamic_shared;
  int most = BLOCKS_A_SM;
  if (THREADS_A_SM / (warps * 32) < most) most = THREADS_A_SM / (warps * 32);
  if (REGISTERS_A_SM / registers < most) most = REGISTERS_A_SM / registers;
  if (shared && SHARED_A_SM / shared < most) most = SHARED_A_SM / shared;
  *blocks = most;
  return CUDA_SUCCESS;
}

#ifndef OLD_DRIVER
EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  STAND();
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = stream_count < MOST_STREAMS ? mock_stream(stream_count, priority) : NULL;
  if (!*stream) return CUDA_ERROR_OUT_OF_MEMORY;
  streams[stream_count++] = *stream;
  return CUDA_SUCCESS;
}
#endif

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  STAND();
  mock_finish(stream);
  return standing();
}

EXPORT CUresult cuStreamQuery(CUstream stream) {
  STAND();
  const bool idle = mock_idle(stream);
  const CUresult result = standing();
  return result ? result : idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* What a launch asks for, if it can be had. */
static CUresult understand(const struct kernel_node *asked, struct call *call) {
  const uint64_t threads = (uint64_t)asked->block[0] * asked->block[1] * asked->block[2];
  const unsigned *grid = asked->grid;
  int fit = 0;
  if (asked->extra || !threads || threads > 1024 || !grid[0] || !grid[1] || !grid[2] || grid[1] > 65535 ||
      grid[2] > 65535 || (int)asked->dynamic_shared > asked->function->dynamic_shared)
    return CUDA_ERROR_INVALID_VALUE;
  cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, asked->function, (int)threads, asked->dynamic_shared);
  if (!fit) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  *call = (struct call){.function = asked->function, .dynamic_shared = asked->dynamic_shared};
  memcpy(call->grid, asked->grid, sizeof call->grid);
  memcpy(call->block, asked->block, sizeof call->block);
  call->floor = mock.floor + ((int64_t)grid[0] * grid[1] * grid[2] - 1) / ((int64_t)fit * PROCESSORS) * mock.wave;
  if (strcmp(asked->function->name, "spanlite_echo") == 0) return CUDA_SUCCESS;
  call->duration = *(uint64_t *)asked->parameters[0];
  call->cell = *(uint64_t **)asked->parameters[1];
  call->tag = *(uint64_t *)asked->parameters[2];
  call->stop = *(uint32_t **)asked->parameters[3];
  return CUDA_SUCCESS;
}

static bool is_refused(void) { return __atomic_fetch_sub(&mock.refused, 1, __ATOMIC_RELAXED) <= 0; }

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned dynamic_shared, CUstream stream,
                               void **parameters, void **extra) {
  STAND();
  struct kernel_node asked = {.function = function,
                              .grid = {grid_x, grid_y, grid_z},
                              .block = {block_x, block_y, block_z},
                              .dynamic_shared = dynamic_shared,
                              .parameters = parameters,
                              .extra = extra};
  struct operation operation = {.kind = KERNEL};
  const CUresult result = understand(&asked, &operation.call);
  if (result) return result;
  if (is_refused()) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (!operation.call.cell) {
    operation.kind = ECHO;
    operation.box = *(uint32_t **)parameters[0];
    operation.rounds = *(uint32_t *)parameters[1];
  }
  return mock_put(stream, &operation);
}

EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
  STAND();
  *graph = keep(sizeof **graph);
  return flags ? CUDA_ERROR_INVALID_VALUE : *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Chains only: each node behind the last. */
EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *behind, size_t count,
                                        const struct kernel_node *asked) {
  STAND();
  if (graph->count == 64 || count != (graph->count ? 1 : 0)) return CUDA_ERROR_INVALID_VALUE;
  if (count && *behind != graph->nodes[graph->count - 1]) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode made = keep(sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made->place = graph->count;
  graph->nodes[graph->count++] = *node = made;
  return understand(asked, &made->call);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
  STAND();
  CUgraphExec train = keep(sizeof *train + (size_t)graph->count * sizeof(struct call));
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!train) return CUDA_ERROR_OUT_OF_MEMORY;
  train->count = graph->count;
  for (int at = 0; at < graph->count; at++) train->calls[at] = graph->nodes[at]->call;
  *made = train;
  return CUDA_SUCCESS;
}

/* What was launched before keeps what it had. */
EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec made, CUgraphNode node, const struct kernel_node *asked) {
  STAND();
  return understand(asked, &made->calls[node->place]);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec made, CUstream stream) {
  STAND();
  if (is_refused()) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  struct operation operation = {.kind = TRAIN, .train = made, .count = made->count, .turn = made->put++};
  operation.calls = calloc((size_t)made->count, sizeof *made->calls);
  if (!operation.calls) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(operation.calls, made->calls, (size_t)made->count * sizeof *made->calls);
  return mock_put(stream, &operation);
}

/* Memory is full of what nobody wrote. */
static void *allocate(size_t size) {
  void *memory = NULL;
  if (posix_memalign(&memory, 4096, size)) return NULL;
  return memset(memory, 0xa5, size);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  STAND();
  *address = (CUdeviceptr)allocate(size);
  return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  free((void *)address);
  return standing();
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t size) {
  STAND();
  memset((void *)address, value, size);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
  STAND();
  (void)flags;
  *address = allocate(size);
  return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemFreeHost(void *address) {
  free(address);
  return standing();
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags) {
  STAND();
  *device = (CUdeviceptr)host;
  return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *host, CUdeviceptr device, size_t size, CUstream stream) {
  STAND();
  return mock_put(stream, &(struct operation){.kind = COPY_OUT, .to = host, .from = (void *)device, .size = size});
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr device, const void *host, size_t size, CUstream stream) {
  STAND();
  struct operation operation = {.kind = COPY_IN, .to = (void *)device, .size = size};
  if (size > sizeof operation.held) return CUDA_ERROR_INVALID_VALUE;
  memcpy(operation.held, host, size);
  return mock_put(stream, &operation);
}

#define ERRORS(E)                                                                       \
  E(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                       \
  E(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                          \
  E(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                         \
  E(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                \
  E(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                               \
  E(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")                             \
  E(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                     \
  E(CUDA_ERROR_NOT_READY, "device not ready")                                           \
  E(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")             \
  E(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")      \
  E(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination")

EXPORT CUresult cuGetErrorName(CUresult error, const char **text) {
#define NAME(code, said) \
  if (error == code) *text = #code;
  ERRORS(NAME)
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
#define TEXT(code, said) \
  if (error == code) *text = said;
  ERRORS(TEXT)
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
