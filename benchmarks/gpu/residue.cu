// What does a launch cost while CUPTI is in this or that state? A process walks through a sequence of steps:
//
//   nvcc -O2 -arch=native -o residue residue.cu -I CUPTI/include -L CUPTI/lib -lcupti -lcuda
//   ./residue {launch|graphN} STEPS
//
//   c  the context              s  p, a and r                                       e/d  kinds on, off
//   w  warm up                  p/u  subscribe, unsubscribe                         E/D  the same for this context alone
//   m  measure                  a  register the callbacks of activity buffers       l/L  callbacks of launches on, off
//   g  capture the graph anew   r/R  a callback of cuCtxGetCurrent, of new contexts  x/y  the driver's, the runtime's off
//   f/F  flush, forced flush
//
// Prints one line of JSON: for each m the nanoseconds of wall time a kernel, by how much CUPTI's correlation counter rose
// in 100 launches (-1: nobody to ask), and the records that have come so far. `launch` starts kernels that do nothing
// one by one, `graphN` replays a CUDA graph of 176 kernels of 3.5 us and waits for the GPU after every N.
#include <cuda.h>
#include <cupti.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define OK(call)                                                                     \
  do {                                                                               \
    auto result = (call);                                                            \
    if (result) fprintf(stderr, "%s: %d (line %d)\n", #call, (int)result, __LINE__); \
  } while (0)

static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMSET};
static const CUpti_CallbackId launches[] = {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
                                            CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch};
static const int NODES = 176, PIECES = 5;

static unsigned correlation;
static unsigned long records;
static bool graph, subscribed;
static int together = 20000; // launches between two times that the GPU is waited for
static CUpti_SubscriberHandle subscriber;
static cudaStream_t stream;
static cudaGraphExec_t replay;

static void CUPTIAPI on_call(void *, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id != CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent) return;
  auto *call = (const CUpti_CallbackData *)data;
  if (call->callbackSite == CUPTI_API_ENTER) correlation = call->correlationId;
}
static void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *most) {
  *size = 8 << 20;
  *buffer = (uint8_t *)aligned_alloc(8, *size);
  *most = 0;
}
static void CUPTIAPI completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
  CUpti_Activity *record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    records += record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  free(buffer);
}

__global__ void nothing() {}
__global__ void busy(int cycles) {
  long long until = clock64() + cycles;
  while (clock64() < until) {
  }
}

static double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void capture() {
  cudaGraph_t captured;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < NODES; i++) busy<<<8, 128, 0, stream>>>(5500);
  OK(cudaStreamEndCapture(stream, &captured));
  OK(cudaGraphInstantiate(&replay, captured, 0));
}

static void launch(int times) {
  for (int i = 0; i < times; i++) {
    if (graph)
      OK(cudaGraphLaunch(replay, stream));
    else
      nothing<<<1, 32, 0, stream>>>();
    if ((i + 1) % together == 0) OK(cudaStreamSynchronize(stream));
  }
  OK(cudaStreamSynchronize(stream));
}

static double measure() {
  std::vector<double> piece;
  int times = graph ? 60 : 20000;
  for (int round = 0; round < PIECES; round++) {
    double begun = now_ns();
    launch(times);
    piece.push_back((now_ns() - begun) / times / (graph ? NODES : 1));
  }
  std::sort(piece.begin(), piece.end());
  return piece[PIECES / 2];
}

static int counted() {
  if (!subscribed) return -1;
  auto where = [] {
    CUcontext context;
    correlation = 0;
    cuCtxGetCurrent(&context);
    return correlation;
  };
  unsigned first = where();
  launch(100);
  return (int)(where() - first);
}

static void step(char what) {
  CUcontext context;
  switch (what) {
    case 'c':
      OK(cudaFree(nullptr));
      OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      if (graph) capture();
      break;
    case 'w': measure(); break;
    case 'm': {
      double ns = measure();
      int rise = counted();
      printf("[%.1f,%d,%lu]", ns, rise, records);
      break;
    }
    case 'g':
      if (graph) capture();
      break;
    case 's':
      for (const char *at = "par"; *at; at++) step(*at);
      break;
    case 'p': OK(cuptiSubscribe(&subscriber, on_call, nullptr)); break;
    case 'a': OK(cuptiActivityRegisterCallbacks(requested, completed)); break;
    case 'u':
      OK(cuptiUnsubscribe(subscriber));
      subscribed = false;
      break;
    case 'e':
      for (auto kind : kinds) OK(cuptiActivityEnable(kind));
      break;
    case 'd':
      for (auto kind : kinds) OK(cuptiActivityDisable(kind));
      break;
    case 'E':
      cuCtxGetCurrent(&context);
      for (auto kind : kinds) OK(cuptiActivityEnableContext(context, kind));
      break;
    case 'D':
      cuCtxGetCurrent(&context);
      for (auto kind : kinds) OK(cuptiActivityDisableContext(context, kind));
      break;
    case 'l':
      for (auto id : launches) OK(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id));
      break;
    case 'L':
      for (auto id : launches) OK(cuptiEnableCallback(0, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id));
      break;
    case 'x': OK(cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_DRIVER_API)); break;
    case 'y': OK(cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API)); break;
    case 'r':
      OK(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent));
      subscribed = true;
      break;
    case 'R':
      OK(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED));
      break;
    case 'f': OK(cuptiActivityFlushAll(0)); break;
    case 'F': OK(cuptiActivityFlushAll(1)); break;
    default: fprintf(stderr, "no step is called %c\n", what), exit(2);
  }
}

int main(int, char **argv) {
  graph = !strncmp(argv[1], "graph", 5);
  if (graph) together = atoi(argv[1] + 5);
  OK(cuInit(0));
  printf("{\"work\":\"%s\",\"steps\":\"%s\",\"measured\":[", argv[1], argv[2]);
  bool some = false;
  for (const char *at = argv[2]; *at; at++) {
    if (*at == 'm' && some) printf(",");
    some = some || *at == 'm';
    step(*at);
  }
  printf("]}\n");
  fflush(stdout);
  _exit(0);  // what tearing down costs is another question
}
