#include "gpus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Values of CUdevice_attribute, from cuda.h. */
enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76, GPUS_MOST = 64 };

static struct {
  int (*DeviceGetCount)(int *count);
  int (*DeviceGet)(int *device, int ordinal);
  int (*DeviceGetUuid)(unsigned char uuid[16], int device);
  int (*DeviceGetUuid_v2)(unsigned char uuid[16], int device); /* that of the MIG instance, where there is one */
  int (*DeviceGetName)(char *name, int length, int device);
  int (*DeviceGetAttribute)(int *value, int attribute, int device);
  int (*DeviceGetPCIBusId)(char *id, int length, int device);
  int (*DevicePrimaryCtxGetState)(int device, unsigned *flags, int *active);
} cuda;

static bool found;

static bool find(void *library, const char *name, void *slot) {
  void *symbol = dlsym(library, name);
  memcpy(slot, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool find_all(void) {
  if (found) return true;
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return false;
#define FIND(name) find(library, "cu" #name, &cuda.name)
  found = FIND(DeviceGetCount) & FIND(DeviceGet) & FIND(DeviceGetUuid) & FIND(DeviceGetName) &
          FIND(DeviceGetAttribute) & FIND(DeviceGetPCIBusId);
  (void)FIND(DeviceGetUuid_v2);
  (void)FIND(DevicePrimaryCtxGetState);
#undef FIND
  return found;
}

static int device_count(void) {
  int count;
  return find_all() && cuda.DeviceGetCount(&count) == 0 ? (count < GPUS_MOST ? count : GPUS_MOST) : 0;
}

bool gpus_known(void) { return device_count() > 0; }

int gpus_in_use(void) {
  int count = device_count(), in_use = 0;
  for (int ordinal = 0; ordinal < count && cuda.DevicePrimaryCtxGetState; ordinal++) {
    int device, active = 0;
    unsigned flags;
    if (cuda.DeviceGet(&device, ordinal) == 0 && cuda.DevicePrimaryCtxGetState(device, &flags, &active) == 0)
      in_use += active != 0;
  }
  return in_use;
}

/* As DCGM spells it: GPU-8-4-4-4-12 hexadecimal digits, MIG-… for an instance. */
static bool write_uuid(struct text *text, int ordinal, int device) {
  unsigned char whole[16], part[16];
  char key[32], spelt[48];
  if (cuda.DeviceGetUuid(whole, device) != 0) return false;
  bool mig = cuda.DeviceGetUuid_v2 && cuda.DeviceGetUuid_v2(part, device) == 0 && memcmp(whole, part, sizeof part) != 0;
  const unsigned char *uuid = mig ? part : whole;
  int length = snprintf(spelt, sizeof spelt, "%s", mig ? "MIG-" : "GPU-");
  for (int at = 0; at < 16; at++) {
    const char *dash = at == 4 || at == 6 || at == 8 || at == 10 ? "-" : "";
    length += snprintf(spelt + length, sizeof spelt - (size_t)length, "%s%02x", dash, uuid[at]);
  }
  snprintf(key, sizeof key, "gpu.%d.uuid", ordinal);
  text_line(text, key, spelt);
  return true;
}

static void write_number(struct text *text, int ordinal, const char *field, int device, int attribute) {
  char key[48];
  int value;
  if (cuda.DeviceGetAttribute(&value, attribute, device) != 0 || value < 0) return;
  snprintf(key, sizeof key, "gpu.%d.%s", ordinal, field);
  text_number(text, key, (uint64_t)value);
}

static void write_text(struct text *text, int ordinal, const char *field, int device, int (*get)(char *, int, int)) {
  char key[48], value[256];
  if (get(value, sizeof value, device) != 0) return;
  value[sizeof value - 1] = 0;
  snprintf(key, sizeof key, "gpu.%d.%s", ordinal, field);
  text_line(text, key, value);
}

bool gpus_write(struct text *text) {
  int count = device_count();
  for (int ordinal = 0; ordinal < count; ordinal++) {
    int device;
    if (cuda.DeviceGet(&device, ordinal) != 0 || !write_uuid(text, ordinal, device)) continue;
    write_text(text, ordinal, "name", device, cuda.DeviceGetName);
    write_text(text, ordinal, "pci_bus_id", device, cuda.DeviceGetPCIBusId);
    write_number(text, ordinal, "compute_major", device, ATTRIBUTE_MAJOR);
    write_number(text, ordinal, "compute_minor", device, ATTRIBUTE_MINOR);
    write_number(text, ordinal, "multiprocessors", device, ATTRIBUTE_MULTIPROCESSORS);
  }
  return count > 0;
}
