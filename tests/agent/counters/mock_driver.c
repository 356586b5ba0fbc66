/* An imitation of libcuda: two devices, no context. */
#include <string.h>

int cuInit(unsigned int flags) { return flags ? 1 : 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 2, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal < 0 || ordinal > 1 ? 101 : 0; }
int cuDeviceGetUuid(unsigned char uuid[16], int device) {
  for (int at = 0; at < 16; at++) uuid[at] = (unsigned char)(0x10 * (at % 10) + device);
  return 0;
}
