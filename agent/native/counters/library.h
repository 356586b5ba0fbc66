/* CUPTI's and CUDA's functions for PM sampling, found at run time: neither library is linked. */
#ifndef SPANLITE_COUNTERS_LIBRARY_H
#define SPANLITE_COUNTERS_LIBRARY_H

#include "abi.h"

struct pm_functions {
  CUptiResult (*GetVersion)(uint32_t *version);
  CUptiResult (*GetResultString)(CUptiResult result, const char **text);
  CUptiResult (*ProfilerInitialize)(struct pm_initialize *);
  CUptiResult (*ProfilerDeviceSupported)(struct pm_supported *);
  CUptiResult (*DeviceGetChipName)(struct pm_chip_name *);
  CUptiResult (*PmSamplingGetCounterAvailability)(struct pm_availability *);
  CUptiResult (*ProfilerHostInitialize)(struct pm_host_initialize *);
  CUptiResult (*ProfilerHostDeinitialize)(struct pm_host_deinitialize *);
  CUptiResult (*ProfilerHostConfigAddMetrics)(struct pm_add_metrics *);
  CUptiResult (*ProfilerHostGetConfigImageSize)(struct pm_config_size *);
  CUptiResult (*ProfilerHostGetConfigImage)(struct pm_config *);
  CUptiResult (*ProfilerHostGetNumOfPasses)(struct pm_passes *);
  CUptiResult (*ProfilerHostEvaluateToGpuValues)(struct pm_evaluate *);
  CUptiResult (*PmSamplingEnable)(struct pm_enable *);
  CUptiResult (*PmSamplingDisable)(struct pm_plain *);
  CUptiResult (*PmSamplingStart)(struct pm_plain *);
  CUptiResult (*PmSamplingStop)(struct pm_plain *);
  CUptiResult (*PmSamplingSetConfig)(struct pm_set_config *);
  CUptiResult (*PmSamplingGetCounterDataSize)(struct pm_data_size *);
  CUptiResult (*PmSamplingCounterDataImageInitialize)(struct pm_data_initialize *);
  CUptiResult (*PmSamplingDecodeData)(struct pm_decode *);
  CUptiResult (*PmSamplingGetCounterDataInfo)(struct pm_data_info *);
  CUptiResult (*PmSamplingCounterDataGetSampleInfo)(struct pm_sample_info *);
};

struct cuda_functions {
  CUresult (*Init)(unsigned int flags);
  CUresult (*DriverGetVersion)(int *version);
  CUresult (*DeviceGetCount)(int *count);
  CUresult (*DeviceGet)(CUdevice *device, int ordinal);
  CUresult (*DeviceGetUuid)(struct cuda_uuid *uuid, CUdevice device);
};

/* Filled by load_libraries; not to be used before it returned 0. */
extern struct pm_functions pm;
extern struct cuda_functions cuda;

/* Opens both libraries, once, calls cuInit and cuptiProfilerInitialize; makes no context. After a failure it may be tried
 * again.
 *
 * libcupti is `path`, or where that is NULL the one that is loaded already, the loader's, or one below /usr/local/cuda.
 * Returns 0 or what error.h says, with a text. */
int load_libraries(const char *path, char *error, size_t error_size);

#endif
