#include "config.h"

#include <stdlib.h>

#include "error.h"
#include "library.h"

int chip_name(int32_t device, const char **name, char *error, size_t error_size) {
  struct pm_chip_name ask = {.size = PM_SIZE(pm_chip_name, name), .device = (size_t)device};
  CUptiResult result = pm.DeviceGetChipName(&ask);
  if (result) return cupti_failed(result, error, error_size, "DeviceGetChipName");
  *name = ask.name;
  return 0;
}

int counter_availability(int32_t device, uint8_t **image, char *error, size_t error_size) {
  struct pm_availability ask = {.size = PM_SIZE(pm_availability, image), .device = (size_t)device};
  CUptiResult result = pm.PmSamplingGetCounterAvailability(&ask);
  if (!result) {
    ask.image = calloc(1, ask.image_size ? ask.image_size : 1);
    if (!ask.image) return failed(ERROR_MEMORY, error, error_size, "no memory for %zu bytes", ask.image_size);
    result = pm.PmSamplingGetCounterAvailability(&ask);
  }
  if (result) {
    free(ask.image);
    return cupti_failed(result, error, error_size, "PmSamplingGetCounterAvailability");
  }
  *image = ask.image;
  return 0;
}

static int make_image(struct config *made, char *error, size_t error_size) {
  struct pm_config_size ask = {.size = PM_SIZE(pm_config_size, image_size), .host = made->host};
  CUptiResult result = pm.ProfilerHostGetConfigImageSize(&ask);
  if (result) return cupti_failed(result, error, error_size, "ProfilerHostGetConfigImageSize");
  made->image = calloc(1, ask.image_size ? ask.image_size : 1);
  if (!made->image) return failed(ERROR_MEMORY, error, error_size, "no memory for %zu bytes", ask.image_size);
  made->image_size = ask.image_size;
  struct pm_config get = {PM_SIZE(pm_config, image), NULL, made->host, made->image_size, made->image};
  result = pm.ProfilerHostGetConfigImage(&get);
  if (result) return cupti_failed(result, error, error_size, "ProfilerHostGetConfigImage");
  struct pm_passes passes = {PM_SIZE(pm_passes, passes), NULL, made->image_size, made->image, 0};
  result = pm.ProfilerHostGetNumOfPasses(&passes);
  if (result) return cupti_failed(result, error, error_size, "ProfilerHostGetNumOfPasses");
  made->passes = passes.passes;
  return 0;
}

static int fill(int32_t device, const char **metrics, size_t count, struct config *made, char *error, size_t error_size) {
  const char *chip = NULL;
  int wrong = chip_name(device, &chip, error, error_size);
  if (!wrong) wrong = counter_availability(device, &made->availability, error, error_size);
  if (wrong) return wrong;
  struct pm_host_initialize begin = {PM_SIZE(pm_host_initialize, host), NULL, PROFILER_TYPE_PM_SAMPLING,
                                     chip, made->availability, NULL};
  CUptiResult result = pm.ProfilerHostInitialize(&begin);
  if (result) return cupti_failed(result, error, error_size, "ProfilerHostInitialize");
  made->host = begin.host;
  struct pm_add_metrics add = {PM_SIZE(pm_add_metrics, count), NULL, made->host, metrics, count};
  result = pm.ProfilerHostConfigAddMetrics(&add);
  if (result) return cupti_failed(result, error, error_size, "ProfilerHostConfigAddMetrics");
  return make_image(made, error, error_size);
}

int make_config(int32_t device, const char **metrics, size_t count, struct config *made, char *error, size_t error_size) {
  *made = (struct config){0};
  int wrong = fill(device, metrics, count, made, error, error_size);
  if (wrong) free_config(made);
  return wrong;
}

void free_config(struct config *made) {
  if (made->host) {
    struct pm_host_deinitialize end = {PM_SIZE(pm_host_deinitialize, host), NULL, made->host};
    pm.ProfilerHostDeinitialize(&end); /* what it says changes nothing any more */
  }
  free(made->availability);
  free(made->image);
  *made = (struct config){0};
}
