// Our structs against those of NVIDIA's headers: every field's place, every size as CUPTI counts it, every number.
#include <cuda.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>
#include <cupti_version.h>

#include <cstddef>
#include <cstdint>

namespace ours {
#include "abi.h"
}

#define FIELD(mine, my_field, theirs, their_field) \
  static_assert(offsetof(ours::mine, my_field) == offsetof(theirs, their_field) && \
                    sizeof(ours::mine::my_field) == sizeof(theirs::their_field), #theirs "." #their_field)
// Later versions may have added fields: a size of theirs that is larger is theirs to understand, as each struct says its own.
#define SIZE(mine, last, theirs) \
  static_assert(offsetof(ours::mine, last) + sizeof(ours::mine::last) <= theirs##_STRUCT_SIZE, #theirs); \
  static_assert(CUPTI_API_VERSION > 130099 || offsetof(ours::mine, last) + sizeof(ours::mine::last) == theirs##_STRUCT_SIZE, #theirs)

FIELD(pm_initialize, unused, CUpti_Profiler_Initialize_Params, pPriv);
SIZE(pm_initialize, unused, CUpti_Profiler_Initialize_Params);

FIELD(pm_chip_name, device, CUpti_Device_GetChipName_Params, deviceIndex);
FIELD(pm_chip_name, name, CUpti_Device_GetChipName_Params, pChipName);
SIZE(pm_chip_name, name, CUpti_Device_GetChipName_Params);

FIELD(pm_supported, device, CUpti_Profiler_DeviceSupported_Params, cuDevice);
FIELD(pm_supported, supported, CUpti_Profiler_DeviceSupported_Params, isSupported);
FIELD(pm_supported, architecture, CUpti_Profiler_DeviceSupported_Params, architecture);
FIELD(pm_supported, sli, CUpti_Profiler_DeviceSupported_Params, sli);
FIELD(pm_supported, vgpu, CUpti_Profiler_DeviceSupported_Params, vGpu);
FIELD(pm_supported, confidential, CUpti_Profiler_DeviceSupported_Params, confidentialCompute);
FIELD(pm_supported, cmp, CUpti_Profiler_DeviceSupported_Params, cmp);
FIELD(pm_supported, wsl, CUpti_Profiler_DeviceSupported_Params, wsl);
FIELD(pm_supported, api, CUpti_Profiler_DeviceSupported_Params, api);
SIZE(pm_supported, api, CUpti_Profiler_DeviceSupported_Params);

FIELD(pm_availability, device, CUpti_PmSampling_GetCounterAvailability_Params, deviceIndex);
FIELD(pm_availability, image_size, CUpti_PmSampling_GetCounterAvailability_Params, counterAvailabilityImageSize);
FIELD(pm_availability, image, CUpti_PmSampling_GetCounterAvailability_Params, pCounterAvailabilityImage);
SIZE(pm_availability, image, CUpti_PmSampling_GetCounterAvailability_Params);

FIELD(pm_host_initialize, profiler_type, CUpti_Profiler_Host_Initialize_Params, profilerType);
FIELD(pm_host_initialize, chip, CUpti_Profiler_Host_Initialize_Params, pChipName);
FIELD(pm_host_initialize, availability, CUpti_Profiler_Host_Initialize_Params, pCounterAvailabilityImage);
FIELD(pm_host_initialize, host, CUpti_Profiler_Host_Initialize_Params, pHostObject);
SIZE(pm_host_initialize, host, CUpti_Profiler_Host_Initialize_Params);

FIELD(pm_host_deinitialize, host, CUpti_Profiler_Host_Deinitialize_Params, pHostObject);
SIZE(pm_host_deinitialize, host, CUpti_Profiler_Host_Deinitialize_Params);

FIELD(pm_add_metrics, host, CUpti_Profiler_Host_ConfigAddMetrics_Params, pHostObject);
FIELD(pm_add_metrics, names, CUpti_Profiler_Host_ConfigAddMetrics_Params, ppMetricNames);
FIELD(pm_add_metrics, count, CUpti_Profiler_Host_ConfigAddMetrics_Params, numMetrics);
SIZE(pm_add_metrics, count, CUpti_Profiler_Host_ConfigAddMetrics_Params);

FIELD(pm_config_size, host, CUpti_Profiler_Host_GetConfigImageSize_Params, pHostObject);
FIELD(pm_config_size, image_size, CUpti_Profiler_Host_GetConfigImageSize_Params, configImageSize);
SIZE(pm_config_size, image_size, CUpti_Profiler_Host_GetConfigImageSize_Params);

FIELD(pm_config, host, CUpti_Profiler_Host_GetConfigImage_Params, pHostObject);
FIELD(pm_config, image_size, CUpti_Profiler_Host_GetConfigImage_Params, configImageSize);
FIELD(pm_config, image, CUpti_Profiler_Host_GetConfigImage_Params, pConfigImage);
SIZE(pm_config, image, CUpti_Profiler_Host_GetConfigImage_Params);

FIELD(pm_passes, image_size, CUpti_Profiler_Host_GetNumOfPasses_Params, configImageSize);
FIELD(pm_passes, image, CUpti_Profiler_Host_GetNumOfPasses_Params, pConfigImage);
FIELD(pm_passes, passes, CUpti_Profiler_Host_GetNumOfPasses_Params, numOfPasses);
SIZE(pm_passes, passes, CUpti_Profiler_Host_GetNumOfPasses_Params);

FIELD(pm_evaluate, host, CUpti_Profiler_Host_EvaluateToGpuValues_Params, pHostObject);
FIELD(pm_evaluate, image, CUpti_Profiler_Host_EvaluateToGpuValues_Params, pCounterDataImage);
FIELD(pm_evaluate, image_size, CUpti_Profiler_Host_EvaluateToGpuValues_Params, counterDataImageSize);
FIELD(pm_evaluate, index, CUpti_Profiler_Host_EvaluateToGpuValues_Params, rangeIndex);
FIELD(pm_evaluate, names, CUpti_Profiler_Host_EvaluateToGpuValues_Params, ppMetricNames);
FIELD(pm_evaluate, count, CUpti_Profiler_Host_EvaluateToGpuValues_Params, numMetrics);
FIELD(pm_evaluate, values, CUpti_Profiler_Host_EvaluateToGpuValues_Params, pMetricValues);
SIZE(pm_evaluate, values, CUpti_Profiler_Host_EvaluateToGpuValues_Params);

FIELD(pm_enable, device, CUpti_PmSampling_Enable_Params, deviceIndex);
FIELD(pm_enable, object, CUpti_PmSampling_Enable_Params, pPmSamplingObject);
SIZE(pm_enable, object, CUpti_PmSampling_Enable_Params);

FIELD(pm_plain, object, CUpti_PmSampling_Disable_Params, pPmSamplingObject);
FIELD(pm_plain, object, CUpti_PmSampling_Start_Params, pPmSamplingObject);
FIELD(pm_plain, object, CUpti_PmSampling_Stop_Params, pPmSamplingObject);
SIZE(pm_plain, object, CUpti_PmSampling_Disable_Params);
SIZE(pm_plain, object, CUpti_PmSampling_Start_Params);
SIZE(pm_plain, object, CUpti_PmSampling_Stop_Params);

FIELD(pm_set_config, object, CUpti_PmSampling_SetConfig_Params, pPmSamplingObject);
FIELD(pm_set_config, config_size, CUpti_PmSampling_SetConfig_Params, configSize);
FIELD(pm_set_config, config, CUpti_PmSampling_SetConfig_Params, pConfig);
FIELD(pm_set_config, hardware_bytes, CUpti_PmSampling_SetConfig_Params, hardwareBufferSize);
FIELD(pm_set_config, interval, CUpti_PmSampling_SetConfig_Params, samplingInterval);
FIELD(pm_set_config, trigger, CUpti_PmSampling_SetConfig_Params, triggerMode);
FIELD(pm_set_config, append_mode, CUpti_PmSampling_SetConfig_Params, hwBufferAppendMode);
SIZE(pm_set_config, append_mode, CUpti_PmSampling_SetConfig_Params);

FIELD(pm_data_size, object, CUpti_PmSampling_GetCounterDataSize_Params, pPmSamplingObject);
FIELD(pm_data_size, names, CUpti_PmSampling_GetCounterDataSize_Params, pMetricNames);
FIELD(pm_data_size, count, CUpti_PmSampling_GetCounterDataSize_Params, numMetrics);
FIELD(pm_data_size, most_samples, CUpti_PmSampling_GetCounterDataSize_Params, maxSamples);
FIELD(pm_data_size, image_size, CUpti_PmSampling_GetCounterDataSize_Params, counterDataSize);
SIZE(pm_data_size, image_size, CUpti_PmSampling_GetCounterDataSize_Params);

FIELD(pm_data_initialize, object, CUpti_PmSampling_CounterDataImage_Initialize_Params, pPmSamplingObject);
FIELD(pm_data_initialize, image_size, CUpti_PmSampling_CounterDataImage_Initialize_Params, counterDataSize);
FIELD(pm_data_initialize, image, CUpti_PmSampling_CounterDataImage_Initialize_Params, pCounterData);
SIZE(pm_data_initialize, image, CUpti_PmSampling_CounterDataImage_Initialize_Params);

FIELD(pm_decode, object, CUpti_PmSampling_DecodeData_Params, pPmSamplingObject);
FIELD(pm_decode, image, CUpti_PmSampling_DecodeData_Params, pCounterDataImage);
FIELD(pm_decode, image_size, CUpti_PmSampling_DecodeData_Params, counterDataImageSize);
FIELD(pm_decode, stop_reason, CUpti_PmSampling_DecodeData_Params, decodeStopReason);
FIELD(pm_decode, overflow, CUpti_PmSampling_DecodeData_Params, overflow);
SIZE(pm_decode, overflow, CUpti_PmSampling_DecodeData_Params);

FIELD(pm_data_info, image, CUpti_PmSampling_GetCounterDataInfo_Params, pCounterDataImage);
FIELD(pm_data_info, image_size, CUpti_PmSampling_GetCounterDataInfo_Params, counterDataImageSize);
FIELD(pm_data_info, total, CUpti_PmSampling_GetCounterDataInfo_Params, numTotalSamples);
FIELD(pm_data_info, populated, CUpti_PmSampling_GetCounterDataInfo_Params, numPopulatedSamples);
FIELD(pm_data_info, completed, CUpti_PmSampling_GetCounterDataInfo_Params, numCompletedSamples);
SIZE(pm_data_info, completed, CUpti_PmSampling_GetCounterDataInfo_Params);

FIELD(pm_sample_info, object, CUpti_PmSampling_CounterData_GetSampleInfo_Params, pPmSamplingObject);
FIELD(pm_sample_info, image, CUpti_PmSampling_CounterData_GetSampleInfo_Params, pCounterDataImage);
FIELD(pm_sample_info, image_size, CUpti_PmSampling_CounterData_GetSampleInfo_Params, counterDataImageSize);
FIELD(pm_sample_info, index, CUpti_PmSampling_CounterData_GetSampleInfo_Params, sampleIndex);
FIELD(pm_sample_info, start, CUpti_PmSampling_CounterData_GetSampleInfo_Params, startTimestamp);
FIELD(pm_sample_info, end, CUpti_PmSampling_CounterData_GetSampleInfo_Params, endTimestamp);
SIZE(pm_sample_info, end, CUpti_PmSampling_CounterData_GetSampleInfo_Params);

static_assert(int(ours::PROFILER_TYPE_PM_SAMPLING) == int(CUPTI_PROFILER_TYPE_PM_SAMPLING));
static_assert(int(ours::PROFILER_API_PM_SAMPLING) == int(CUPTI_PROFILER_PM_SAMPLING));
static_assert(int(ours::TRIGGER_SYSCLK) == int(CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL));
static_assert(int(ours::TRIGGER_TIME) == int(CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL));
static_assert(int(ours::KEEP_OLDEST) == int(CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST));
static_assert(int(ours::STOP_DATA_FULL) == int(CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL));
