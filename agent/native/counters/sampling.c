/* One device's sampling: open, decode, close. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "error.h"
#include "library.h"
#include "spanlite_counters.h"

struct spanlite_counters {
  struct config config;
  pm_object *object;
  const char **names; /* followed by their texts */
  size_t count, image_size;
  uint8_t *image;
  uint32_t capacity;
  int started;
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The caller's names may go; CUPTI is given these for as long as the handle lives. */
static const char **copy_names(const char **names, size_t count) {
  size_t bytes = count * sizeof *names;
  for (size_t at = 0; at < count; at++) bytes += strlen(names[at]) + 1;
  const char **copy = malloc(bytes ? bytes : 1);
  char *text = (char *)(copy + count);
  for (size_t at = 0; copy && at < count; at++) {
    copy[at] = strcpy(text, names[at]);
    text += strlen(text) + 1;
  }
  return copy;
}

static int reset_image(struct spanlite_counters *on, char *error, size_t error_size) {
  struct pm_data_initialize begin = {PM_SIZE(pm_data_initialize, image), NULL, on->object, on->image_size, on->image};
  CUptiResult result = pm.PmSamplingCounterDataImageInitialize(&begin);
  return result ? cupti_failed(result, error, error_size, "PmSamplingCounterDataImageInitialize") : 0;
}

static int make_image(struct spanlite_counters *on, char *error, size_t error_size) {
  struct pm_data_size ask = {.size = PM_SIZE(pm_data_size, image_size), .object = on->object, .names = on->names,
                             .count = on->count, .most_samples = on->capacity};
  CUptiResult result = pm.PmSamplingGetCounterDataSize(&ask);
  if (result) return cupti_failed(result, error, error_size, "PmSamplingGetCounterDataSize");
  on->image_size = ask.image_size;
  on->image = calloc(1, ask.image_size ? ask.image_size : 1);
  if (!on->image) return failed(ERROR_MEMORY, error, error_size, "no memory for %zu bytes", ask.image_size);
  return reset_image(on, error, error_size);
}

static int begin(struct spanlite_counters *on, int32_t device, uint64_t interval, int32_t cycles, size_t hardware_bytes,
                 char *error, size_t error_size) {
  struct pm_enable enable = {PM_SIZE(pm_enable, object), NULL, (size_t)device, NULL};
  CUptiResult result = pm.PmSamplingEnable(&enable);
  if (result) return cupti_failed(result, error, error_size, "PmSamplingEnable");
  on->object = enable.object;
  struct pm_set_config set = {
      .size = PM_SIZE(pm_set_config, append_mode),
      .object = on->object,
      .config_size = on->config.image_size,
      .config = on->config.image,
      .hardware_bytes = hardware_bytes,
      .interval = interval,
      .trigger = cycles ? TRIGGER_SYSCLK : TRIGGER_TIME,
      .append_mode = KEEP_OLDEST, /* the other one loses samples without a word */
  };
  result = pm.PmSamplingSetConfig(&set);
  if (result) return cupti_failed(result, error, error_size, "PmSamplingSetConfig");
  int wrong = make_image(on, error, error_size);
  if (wrong) return wrong;
  struct pm_plain start = {PM_SIZE(pm_plain, object), NULL, on->object};
  result = pm.PmSamplingStart(&start);
  if (result) return cupti_failed(result, error, error_size, "PmSamplingStart");
  on->started = 1;
  return 0;
}

int spanlite_counters_open(int32_t device, const char **metrics, size_t count, uint64_t interval, int32_t cycles,
                           size_t hardware_bytes, uint32_t capacity, struct spanlite_counters **opened, char *error,
                           size_t error_size) {
  *opened = NULL;
  if (!count || !interval || !capacity) return failed(ERROR_ARGUMENT, error, error_size, "no metrics, interval or capacity");
  struct spanlite_counters *on = calloc(1, sizeof *on);
  if (on) on->names = copy_names(metrics, count);
  if (!on || !on->names) {
    free(on);
    return failed(ERROR_MEMORY, error, error_size, "no memory for a handle");
  }
  on->count = count;
  on->capacity = capacity;
  int wrong = make_config(device, on->names, count, &on->config, error, error_size);
  if (!wrong && on->config.passes != 1)
    wrong = failed(ERROR_PASSES, error, error_size, "the metrics need %zu passes, and sampling takes one", on->config.passes);
  if (!wrong) wrong = begin(on, device, interval, cycles, hardware_bytes, error, error_size);
  if (wrong) {
    spanlite_counters_close(on, NULL, 0);
    return wrong;
  }
  *opened = on;
  return 0;
}

/* Times and values of the image's whole samples, one call of CUPTI each: it evaluates one sample at a time. */
static int evaluate(struct spanlite_counters *on, size_t samples, uint64_t *starts, uint64_t *ends, double *values,
                    char *error, size_t error_size) {
  struct pm_sample_info info = {.size = PM_SIZE(pm_sample_info, end), .object = on->object, .image = on->image,
                                .image_size = on->image_size};
  struct pm_evaluate value = {.size = PM_SIZE(pm_evaluate, values), .host = on->config.host, .image = on->image,
                              .image_size = on->image_size, .names = on->names, .count = on->count};
  for (size_t at = 0; at < samples; at++) {
    info.index = value.index = at;
    value.values = values + at * on->count;
    CUptiResult result = pm.PmSamplingCounterDataGetSampleInfo(&info);
    if (result) return cupti_failed(result, error, error_size, "PmSamplingCounterDataGetSampleInfo");
    result = pm.ProfilerHostEvaluateToGpuValues(&value);
    if (result) return cupti_failed(result, error, error_size, "ProfilerHostEvaluateToGpuValues");
    starts[at] = info.start;
    ends[at] = info.end;
  }
  return 0;
}

int spanlite_counters_decode(struct spanlite_counters *opened, size_t capacity, uint64_t *starts, uint64_t *ends,
                             double *values, struct spanlite_counters_decoded *what, char *error, size_t error_size) {
  struct spanlite_counters *on = opened;
  *what = (struct spanlite_counters_decoded){0};
  if (capacity < on->capacity)
    return failed(ERROR_ARGUMENT, error, error_size, "room for %zu samples, and %u may come", capacity, on->capacity);
  const uint64_t begun = now_ns();
  struct pm_decode decode = {.size = PM_SIZE(pm_decode, overflow), .object = on->object, .image = on->image,
                             .image_size = on->image_size};
  CUptiResult result = pm.PmSamplingDecodeData(&decode);
  what->overflow = decode.overflow;
  if (result) return cupti_failed(result, error, error_size, "PmSamplingDecodeData");
  struct pm_data_info info = {.size = PM_SIZE(pm_data_info, completed), .image = on->image, .image_size = on->image_size};
  result = pm.PmSamplingGetCounterDataInfo(&info);
  if (result) return cupti_failed(result, error, error_size, "PmSamplingGetCounterDataInfo");
  const uint64_t decoded = now_ns();
  size_t samples = info.completed < capacity ? info.completed : capacity;
  int wrong = evaluate(on, samples, starts, ends, values, error, error_size);
  if (wrong) return wrong;
  const uint64_t evaluated = now_ns();
  if (info.populated) wrong = reset_image(on, error, error_size);
  if (wrong) return wrong;
  what->samples = samples;
  what->unfinished = info.populated > samples ? info.populated - samples : 0;
  what->more = decode.stop_reason == STOP_DATA_FULL;
  what->decode_ns = decoded - begun;
  what->evaluate_ns = evaluated - decoded;
  what->reset_ns = now_ns() - evaluated;
  return 0;
}

int spanlite_counters_close(struct spanlite_counters *opened, char *error, size_t error_size) {
  struct spanlite_counters *on = opened;
  int wrong = 0;
  struct pm_plain object = {PM_SIZE(pm_plain, object), NULL, on->object};
  if (on->started) {
    CUptiResult result = pm.PmSamplingStop(&object);
    if (result) wrong = cupti_failed(result, error, error_size, "PmSamplingStop");
  }
  if (on->object) {
    CUptiResult result = pm.PmSamplingDisable(&object);
    if (result && !wrong) wrong = cupti_failed(result, error, error_size, "PmSamplingDisable");
  }
  free_config(&on->config);
  free(on->names);
  free(on->image);
  free(on);
  return wrong;
}
