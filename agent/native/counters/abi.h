/* The types and numbers of CUPTI's and CUDA's binary interfaces that PM sampling needs.
 *
 * Written down from cupti_pmsampling.h, cupti_profiler_host.h, cupti_profiler_target.h, cupti_target.h and cupti_result.h
 * of CUDA 13.0. Every call takes one struct that begins with its own size as the caller knows it. */
#ifndef SPANLITE_COUNTERS_ABI_H
#define SPANLITE_COUNTERS_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUptiResult;
typedef int CUresult;
typedef int CUdevice;
typedef struct pm_object pm_object;
typedef struct pm_host pm_host;

enum { CUPTI_SUCCESS = 0, CUDA_SUCCESS = 0 };
enum { PROFILER_TYPE_PM_SAMPLING = 1 };     /* CUpti_ProfilerType */
enum { PROFILER_API_PM_SAMPLING = 3 };      /* CUpti_Profiler_API */
enum { TRIGGER_SYSCLK = 0, TRIGGER_TIME = 1 };
enum { KEEP_OLDEST = 0 };
enum { STOP_DATA_FULL = 1 };                /* CUpti_PmSampling_DecodeStopReason */

/* A struct's size as CUPTI counts it: without the padding behind its last field. */
#define PM_SIZE(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))

struct pm_initialize {
  size_t size;
  void *unused;
};

struct pm_chip_name {
  size_t size;
  void *unused;
  size_t device;
  const char *name;
};

struct pm_supported {
  size_t size;
  void *unused;
  CUdevice device;
  int supported, architecture, sli, vgpu, confidential, cmp, wsl; /* 1 no, 2 switched off, 3 yes, 0 not known */
  int api;
};

struct pm_availability {
  size_t size;
  void *unused;
  size_t device;
  size_t image_size;
  uint8_t *image;
};

struct pm_host_initialize {
  size_t size;
  void *unused;
  int profiler_type;
  const char *chip;
  const uint8_t *availability;
  pm_host *host;
};

struct pm_host_deinitialize {
  size_t size;
  void *unused;
  pm_host *host;
};

struct pm_add_metrics {
  size_t size;
  void *unused;
  pm_host *host;
  const char **names;
  size_t count;
};

struct pm_config_size {
  size_t size;
  void *unused;
  pm_host *host;
  size_t image_size;
};

struct pm_config {
  size_t size;
  void *unused;
  pm_host *host;
  size_t image_size;
  uint8_t *image;
};

struct pm_passes {
  size_t size;
  void *unused;
  size_t image_size;
  uint8_t *image;
  size_t passes;
};

struct pm_evaluate {
  size_t size;
  void *unused;
  pm_host *host;
  const uint8_t *image;
  size_t image_size;
  size_t index;
  const char **names;
  size_t count;
  double *values;
};

struct pm_enable {
  size_t size;
  void *unused;
  size_t device;
  pm_object *object;
};

/* Disable, start and stop take the same. */
struct pm_plain {
  size_t size;
  void *unused;
  pm_object *object;
};

struct pm_set_config {
  size_t size;
  void *unused;
  pm_object *object;
  size_t config_size;
  const uint8_t *config;
  size_t hardware_bytes;
  uint64_t interval;
  int trigger;
  int append_mode;
};

struct pm_data_size {
  size_t size;
  void *unused;
  pm_object *object;
  const char **names;
  size_t count;
  uint32_t most_samples;
  size_t image_size;
};

struct pm_data_initialize {
  size_t size;
  void *unused;
  pm_object *object;
  size_t image_size;
  uint8_t *image;
};

struct pm_decode {
  size_t size;
  void *unused;
  pm_object *object;
  uint8_t *image;
  size_t image_size;
  int stop_reason;
  uint8_t overflow;
};

struct pm_data_info {
  size_t size;
  void *unused;
  const uint8_t *image;
  size_t image_size;
  size_t total, populated, completed;
};

struct pm_sample_info {
  size_t size;
  void *unused;
  pm_object *object;
  const uint8_t *image;
  size_t image_size;
  size_t index;
  uint64_t start, end;
};

struct cuda_uuid {
  unsigned char bytes[16];
};

#endif
