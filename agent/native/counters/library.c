#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "../open_cupti.h"
#include "error.h"

struct pm_functions pm;
struct cuda_functions cuda;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A function of a library into a table; ISO C has no cast for it. */
static int find(void *library, const char *name, void *slot, char *error, size_t error_size) {
  void *symbol = dlsym(library, name);
  memcpy(slot, &symbol, sizeof symbol);
  if (symbol) return 0;
  return failed(ERROR_LIBRARY, error, error_size, "%s is missing: PM sampling needs CUDA 12.6 or later", name);
}

static int find_cuda(char *error, size_t error_size) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return failed(ERROR_LIBRARY, error, error_size, "no driver here: %s", dlerror());
  int wrong = 0;
#define FIND(name, slot) \
  if (!wrong) wrong = find(library, name, &cuda.slot, error, error_size)
  FIND("cuInit", Init);
  FIND("cuDriverGetVersion", DriverGetVersion);
  FIND("cuDeviceGetCount", DeviceGetCount);
  FIND("cuDeviceGet", DeviceGet);
  FIND("cuDeviceGetUuid", DeviceGetUuid);
#undef FIND
  CUresult result = wrong ? 0 : cuda.Init(0);
  return result ? failed(ERROR_CUDA, error, error_size, "cuInit gives %d", result) : wrong;
}

static int find_cupti(const char *path, char *error, size_t error_size) {
  void *library = open_cupti(path);
  if (!library) {
    const char *why = path ? dlerror() : "neither on the loader's path nor below /usr/local/cuda";
    return failed(ERROR_LIBRARY, error, error_size, "no libcupti: %s", why ? why : path);
  }
  int wrong = 0;
#define FIND(name) \
  if (!wrong) wrong = find(library, "cupti" #name, &pm.name, error, error_size)
  FIND(GetVersion);
  FIND(GetResultString);
  FIND(ProfilerInitialize);
  FIND(ProfilerDeviceSupported);
  FIND(DeviceGetChipName);
  FIND(PmSamplingGetCounterAvailability);
  FIND(ProfilerHostInitialize);
  FIND(ProfilerHostDeinitialize);
  FIND(ProfilerHostConfigAddMetrics);
  FIND(ProfilerHostGetConfigImageSize);
  FIND(ProfilerHostGetConfigImage);
  FIND(ProfilerHostGetNumOfPasses);
  FIND(ProfilerHostEvaluateToGpuValues);
  FIND(PmSamplingEnable);
  FIND(PmSamplingDisable);
  FIND(PmSamplingStart);
  FIND(PmSamplingStop);
  FIND(PmSamplingSetConfig);
  FIND(PmSamplingGetCounterDataSize);
  FIND(PmSamplingCounterDataImageInitialize);
  FIND(PmSamplingDecodeData);
  FIND(PmSamplingGetCounterDataInfo);
  FIND(PmSamplingCounterDataGetSampleInfo);
#undef FIND
  if (wrong) return wrong;
  struct pm_initialize begin = {PM_SIZE(pm_initialize, unused), NULL};
  CUptiResult result = pm.ProfilerInitialize(&begin);
  return result ? cupti_failed(result, error, error_size, "ProfilerInitialize") : 0;
}

int load_libraries(const char *path, char *error, size_t error_size) {
  static int loaded;
  pthread_mutex_lock(&lock);
  int wrong = loaded ? 0 : find_cuda(error, error_size);
  if (!loaded && !wrong) wrong = find_cupti(path, error, error_size);
  loaded = loaded || !wrong;
  pthread_mutex_unlock(&lock);
  return wrong;
}
