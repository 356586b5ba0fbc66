/* An imitation of the few functions of libcuda that the collector asks: two devices, the second a MIG instance. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

uint32_t (*mock_cuda_hook)(uint32_t cbid); /* set by the imitation of CUPTI */
int mock_cuda_result;                      /* of every function: 3 is CUDA_ERROR_NOT_INITIALIZED */

int cuCtxGetCurrent(void **context) {
  *context = NULL;
  if (mock_cuda_hook) mock_cuda_hook(304);
  return mock_cuda_result;
}

_Atomic int mock_cuda_active; /* the second device has a primary context */

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = device == 1 && mock_cuda_active;
  return mock_cuda_result;
}

int cuDeviceGetCount(int *count) {
  *count = 2;
  return mock_cuda_result;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return mock_cuda_result;
}

int cuDeviceGetUuid(unsigned char uuid[16], int device) {
  for (int at = 0; at < 16; at++) uuid[at] = (unsigned char)(16 * device + at);
  return mock_cuda_result;
}

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
  cuDeviceGetUuid(uuid, device);
  if (device == 1) uuid[0] = 0xff;
  return mock_cuda_result;
}

int cuDeviceGetName(char *name, int length, int device) {
  snprintf(name, (size_t)length, "Mock %d", device);
  return mock_cuda_result;
}

int cuDeviceGetPCIBusId(char *id, int length, int device) {
  snprintf(id, (size_t)length, "0000:%02x:00.0", device);
  return mock_cuda_result;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 9 : attribute == 16 ? 132 : 0;
  return mock_cuda_result;
}
