/* An imitation of CUPTI's PM sampling: it gives the samples that it was told, and refuses as it was told.
 *
 * Structs and sizes as in CUPTI 13.0's headers, written down anew here. What no client may do (another struct size, a
 * call out of order, an index past the end) is counted as a violation. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { METRICS_MOST = 16, SAMPLES_MOST = 1 << 16, MAGIC = 0x5a3f };

struct sample {
  uint64_t start, end;
  double values[METRICS_MOST];
};

static struct {
  const char *key;
  long value;
} values[] = {
    {"version", 130000},      {"initialize_result", 0}, {"supported", 3},    {"vgpu", 3},
    {"availability_result", 0}, {"host_result", 0},     {"metrics_result", 0}, {"passes", 1},
    {"enable_result", 0},     {"config_result", 0},     {"time_result", 0},  {"start_result", 0},
    {"decode_result", 0},     {"evaluate_result", 0},   {"stop_result", 0},  {"disable_result", 0},
    {"overflow", 0},          {"unfinished", 0},
    {"live", 0}, /* samples come by themselves, as time passes, with so many percent of warps active */
    /* what was done */
    {"violations", 0}, {"enabled", 0}, {"hosts", 0}, {"decodes", 0}, {"evaluations", 0}, {"device", -1},
    {"interval", 0},   {"trigger", -1}, {"hardware_bytes", 0}, {"append_mode", -1}, {"metrics", 0},
};

static struct sample queue[SAMPLES_MOST];
static size_t queued, taken, started, host_metrics;

static long *value(const char *key) {
  for (size_t at = 0; at < sizeof values / sizeof *values; at++)
    if (strcmp(values[at].key, key) == 0) return &values[at].value;
  fprintf(stderr, "mock: no value %s\n", key);
  abort();
}

void mock_set(const char *key, long now) { *value(key) = now; }
long mock_get(const char *key) { return *value(key); }

/* A sample into the hardware buffer. */
void mock_sample(uint64_t start, uint64_t end, const double *of, size_t count) {
  struct sample *one = &queue[queued++ % SAMPLES_MOST];
  one->start = start;
  one->end = end;
  memcpy(one->values, of, count * sizeof *of);
}

static int violation(const char *what) {
  fprintf(stderr, "mock: VIOLATION %s\n", what);
  ++*value("violations");
  return 1;
}

static int checked(const void *params, size_t size, const char *what) {
  size_t said;
  void *unused;
  memcpy(&said, params, sizeof said);
  memcpy(&unused, (const char *)params + 8, sizeof unused);
  return said == size && !unused ? 0 : violation(what);
}

static uint64_t sampled_to;

/* What the hardware would have sampled by now: all SMs active, half of that time with tensor cores. */
static void live(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t step = (uint64_t)*value("interval");
  const uint64_t until = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  const double of[] = {(double)*value("live"), 100, 50, 1000, 2000, 300};
  for (; sampled_to + step <= until; sampled_to += step) mock_sample(sampled_to, sampled_to + step, of, 6);
}

__attribute__((constructor)) static void begin(void) {
  if (getenv("MOCK_PM_LIVE")) mock_set("live", atol(getenv("MOCK_PM_LIVE")));
}

int cuptiGetVersion(uint32_t *version) { return *version = (uint32_t)*value("version"), 0; }

int cuptiGetResultString(int result, const char **text) {
  *text = result == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : result == 26 ? "CUPTI_ERROR_HARDWARE_BUSY"
        : result == 27 ? "CUPTI_ERROR_NOT_SUPPORTED" : result == 8 ? "CUPTI_ERROR_OUT_OF_MEMORY" : "CUPTI_ERROR_OTHER";
  return 0;
}

int cuptiProfilerInitialize(void *params) {
  return checked(params, 16, "ProfilerInitialize") ? 1 : (int)*value("initialize_result");
}

struct supported {
  size_t size;
  void *unused;
  int device, all, architecture, sli, vgpu, confidential, cmp, wsl, api;
};
int cuptiProfilerDeviceSupported(struct supported *ask) {
  if (checked(ask, 52, "ProfilerDeviceSupported") || ask->api != 3) return 1;
  ask->all = (int)*value("supported");
  ask->vgpu = (int)*value("vgpu");
  ask->architecture = ask->sli = ask->confidential = ask->cmp = ask->wsl = 3;
  return 0;
}

struct chip {
  size_t size;
  void *unused;
  size_t device;
  const char *name;
};
int cuptiDeviceGetChipName(struct chip *ask) {
  if (checked(ask, 32, "DeviceGetChipName")) return 1;
  ask->name = "GH100";
  return 0;
}

struct availability {
  size_t size;
  void *unused;
  size_t device, bytes;
  uint8_t *image;
};
int cuptiPmSamplingGetCounterAvailability(struct availability *ask) {
  if (checked(ask, 40, "PmSamplingGetCounterAvailability")) return 1;
  if (*value("availability_result")) return (int)*value("availability_result");
  if (ask->image) memset(ask->image, 7, ask->bytes);
  ask->bytes = 64;
  return 0;
}

struct host_begin {
  size_t size;
  void *unused;
  int type;
  const char *chip;
  const uint8_t *availability;
  void *host;
};
int cuptiProfilerHostInitialize(struct host_begin *ask) {
  if (checked(ask, 48, "ProfilerHostInitialize") || ask->type != 1 || strcmp(ask->chip, "GH100") != 0) return 1;
  if (!ask->availability || ask->availability[63] != 7) return violation("no image of the counters that there are");
  if (*value("host_result")) return (int)*value("host_result");
  ask->host = malloc(8);
  ++*value("hosts");
  return 0;
}

struct host {
  size_t size;
  void *unused;
  void *host;
};
int cuptiProfilerHostDeinitialize(struct host *ask) {
  if (checked(ask, 24, "ProfilerHostDeinitialize")) return 1;
  free(ask->host);
  --*value("hosts");
  return 0;
}

struct add {
  size_t size;
  void *unused;
  void *host;
  const char **names;
  size_t count;
};
int cuptiProfilerHostConfigAddMetrics(struct add *ask) {
  if (checked(ask, 40, "ProfilerHostConfigAddMetrics") || !ask->host) return 1;
  host_metrics = ask->count;
  for (size_t at = 0; at < ask->count; at++)
    if (strncmp(ask->names[at], "none_", 5) == 0) return 17;
  return (int)*value("metrics_result");
}

struct image {
  size_t size;
  void *unused;
  void *host;
  size_t bytes;
  uint8_t *image;
};
int cuptiProfilerHostGetConfigImageSize(struct image *ask) {
  if (checked(ask, 32, "ProfilerHostGetConfigImageSize")) return 1;
  ask->bytes = 32;
  return 0;
}

int cuptiProfilerHostGetConfigImage(struct image *ask) {
  if (checked(ask, 40, "ProfilerHostGetConfigImage") || ask->bytes != 32) return 1;
  memset(ask->image, (int)host_metrics, 32);
  return 0;
}

struct passes {
  size_t size;
  void *unused;
  size_t bytes;
  uint8_t *image;
  size_t passes;
};
/* As many as told, or one for each six metrics of a config. */
int cuptiProfilerHostGetNumOfPasses(struct passes *ask) {
  if (checked(ask, 40, "ProfilerHostGetNumOfPasses")) return 1;
  long most = *value("passes");
  ask->passes = most < 0 ? (size_t)(ask->image[0] > -most ? 2 : 1) : (size_t)most;
  return 0;
}

struct enable {
  size_t size;
  void *unused;
  size_t device;
  void *object;
};
int cuptiPmSamplingEnable(struct enable *ask) {
  if (checked(ask, 32, "PmSamplingEnable")) return 1;
  if (*value("enable_result")) return (int)*value("enable_result");
  if (*value("enabled")) return 7; /* as the header says of a device that is sampled already */
  *value("enabled") = 1;
  *value("device") = (long)ask->device;
  ask->object = malloc(8);
  return 0;
}

int cuptiPmSamplingDisable(struct host *ask) {
  if (checked(ask, 24, "PmSamplingDisable") || !*value("enabled")) return violation("disabled without being enabled");
  if (started) violation("disabled before it was stopped");
  free(ask->host);
  *value("enabled") = 0;
  return (int)*value("disable_result");
}

struct set {
  size_t size;
  void *unused;
  void *object;
  size_t config_bytes;
  const uint8_t *config;
  size_t hardware;
  uint64_t interval;
  int trigger, mode;
};
int cuptiPmSamplingSetConfig(struct set *ask) {
  if (checked(ask, 64, "PmSamplingSetConfig") || ask->config_bytes != 32 || !ask->object) return 1;
  *value("interval") = (long)ask->interval;
  *value("trigger") = ask->trigger;
  *value("hardware_bytes") = (long)ask->hardware;
  *value("append_mode") = ask->mode;
  *value("metrics") = ask->config[0];
  if (ask->trigger == 1 && *value("time_result")) return (int)*value("time_result");
  return (int)*value("config_result");
}

int cuptiPmSamplingStart(struct host *ask) {
  if (checked(ask, 24, "PmSamplingStart") || started) return 7;
  if (*value("start_result")) return (int)*value("start_result");
  started = 1;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  sampled_to = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  return 0;
}

int cuptiPmSamplingStop(struct host *ask) {
  if (checked(ask, 24, "PmSamplingStop") || !started) return violation("stopped without being started");
  started = 0;
  taken = queued;
  return (int)*value("stop_result");
}

struct counter_data {
  uint32_t magic;
  uint32_t capacity;
  size_t samples;
  struct sample of[];
};
static uint32_t capacity;

struct data_size {
  size_t size;
  void *unused;
  void *object;
  const char **names;
  size_t count;
  uint32_t most;
  size_t bytes;
};
int cuptiPmSamplingGetCounterDataSize(struct data_size *ask) {
  if (checked(ask, 56, "PmSamplingGetCounterDataSize") || ask->count > METRICS_MOST) return 1;
  capacity = ask->most;
  ask->bytes = sizeof(struct counter_data) + ask->most * sizeof(struct sample);
  return 0;
}

struct data {
  size_t size;
  void *unused;
  void *object;
  size_t bytes;
  struct counter_data *image;
};
int cuptiPmSamplingCounterDataImageInitialize(struct data *ask) {
  if (checked(ask, 40, "PmSamplingCounterDataImageInitialize")) return 1;
  *ask->image = (struct counter_data){MAGIC, capacity, 0};
  return 0;
}

struct decode {
  size_t size;
  void *unused;
  void *object;
  struct counter_data *image;
  size_t bytes;
  int why;
  uint8_t overflow;
};
int cuptiPmSamplingDecodeData(struct decode *ask) {
  if (checked(ask, 45, "PmSamplingDecodeData") || !started) return violation("decoded without being started");
  ++*value("decodes");
  ask->overflow = (uint8_t)*value("overflow");
  if (*value("decode_result")) return (int)*value("decode_result");
  if (*value("live")) live();
  struct counter_data *image = ask->image;
  if (image->magic != MAGIC || image->samples) return violation("decoded into an image that was not made ready");
  while (taken < queued && image->samples < image->capacity) image->of[image->samples++] = queue[taken++ % SAMPLES_MOST];
  ask->why = taken < queued ? 1 : 2;
  return 0;
}

struct info {
  size_t size;
  void *unused;
  const struct counter_data *image;
  size_t bytes, total, populated, completed;
};
int cuptiPmSamplingGetCounterDataInfo(struct info *ask) {
  if (checked(ask, 56, "PmSamplingGetCounterDataInfo")) return 1;
  ask->total = ask->image->capacity;
  ask->completed = ask->image->samples;
  ask->populated = ask->completed + (size_t)*value("unfinished");
  return 0;
}

struct sample_info {
  size_t size;
  void *unused;
  void *object;
  const struct counter_data *image;
  size_t bytes, index;
  uint64_t start, end;
};
int cuptiPmSamplingCounterDataGetSampleInfo(struct sample_info *ask) {
  if (checked(ask, 64, "PmSamplingCounterDataGetSampleInfo") || ask->index >= ask->image->samples)
    return violation("a sample past the end");
  ask->start = ask->image->of[ask->index].start;
  ask->end = ask->image->of[ask->index].end;
  return 0;
}

struct evaluate {
  size_t size;
  void *unused;
  void *host;
  const struct counter_data *image;
  size_t bytes, index;
  const char **names;
  size_t count;
  double *values;
};
int cuptiProfilerHostEvaluateToGpuValues(struct evaluate *ask) {
  if (checked(ask, 72, "ProfilerHostEvaluateToGpuValues") || ask->index >= ask->image->samples)
    return violation("a value past the end");
  ++*value("evaluations");
  memcpy(ask->values, ask->image->of[ask->index].values, ask->count * sizeof(double));
  return (int)*value("evaluate_result");
}
