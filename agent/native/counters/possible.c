/* What is possible, before anything is enabled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "error.h"
#include "library.h"
#include "spanlite_counters.h"

int spanlite_counters_load(const char *cupti, uint32_t *cupti_version, int32_t *driver_version, int32_t *devices,
                           char *error, size_t error_size) {
  int wrong = load_libraries(cupti, error, error_size);
  if (wrong) return wrong;
  CUptiResult result = pm.GetVersion(cupti_version);
  if (result) return cupti_failed(result, error, error_size, "GetVersion");
  int count = 0, version = 0;
  CUresult told = cuda.DriverGetVersion(&version);
  if (!told) told = cuda.DeviceGetCount(&count);
  if (told) return failed(ERROR_CUDA, error, error_size, "cuDeviceGetCount gives %d", told);
  *driver_version = version;
  *devices = count;
  return 0;
}

static int write_uuid(int32_t device, char *text, size_t size, char *error, size_t error_size) {
  CUdevice handle;
  struct cuda_uuid uuid;
  CUresult result = cuda.DeviceGet(&handle, device);
  if (!result) result = cuda.DeviceGetUuid(&uuid, handle);
  if (result) return failed(ERROR_CUDA, error, error_size, "no UUID of device %d: CUDA gives %d", device, result);
  int used = snprintf(text, size, "GPU-");
  for (size_t at = 0; at < sizeof uuid.bytes; at++)
    used += snprintf(text + used, size - (size_t)used, at == 4 || at == 6 || at == 8 || at == 10 ? "-%02x" : "%02x",
                     uuid.bytes[at]);
  return 0;
}

int spanlite_counters_probe(int32_t device, struct spanlite_counters_device *about, char *error, size_t error_size) {
  *about = (struct spanlite_counters_device){0};
  int wrong = write_uuid(device, about->uuid, sizeof about->uuid, error, error_size);
  if (wrong) return wrong;
  CUdevice handle;
  if (cuda.DeviceGet(&handle, device)) return failed(ERROR_CUDA, error, error_size, "device %d is gone", device);
  struct pm_supported ask = {.size = PM_SIZE(pm_supported, api), .device = handle, .api = PROFILER_API_PM_SAMPLING};
  CUptiResult result = pm.ProfilerDeviceSupported(&ask);
  if (result) return cupti_failed(result, error, error_size, "ProfilerDeviceSupported");
  about->supported = ask.supported;
  about->architecture = ask.architecture;
  about->sli = ask.sli;
  about->vgpu = ask.vgpu;
  about->confidential = ask.confidential;
  about->cmp = ask.cmp;
  about->wsl = ask.wsl;
  const char *chip = NULL;
  wrong = chip_name(device, &chip, error, error_size);
  if (wrong) return wrong;
  snprintf(about->chip, sizeof about->chip, "%s", chip);
  uint8_t *image = NULL;
  about->permission = counter_availability(device, &image, error, error_size);
  free(image);
  return about->permission < 0 ? about->permission : 0; /* a refusal is an answer, and its text stays */
}

int spanlite_counters_passes(int32_t device, const char **metrics, size_t count, size_t *passes, char *error,
                             size_t error_size) {
  struct config made;
  int wrong = make_config(device, metrics, count, &made, error, error_size);
  if (wrong) return wrong;
  *passes = made.passes;
  free_config(&made);
  return 0;
}
