#include "cupti.h"

#include <dlfcn.h>
#include <glob.h>
#include <string.h>

#include "settings.h"
#include "state.h"

struct cupti cupti;

static const char *const names[] = {"libcupti.so.13", "libcupti.so.12"};
static const char *const places[] = {
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.1[23]",
    "/usr/local/cuda/targets/*/lib/libcupti.so.1[23]",
    "/usr/local/cuda-1[23]*/extras/CUPTI/lib64/libcupti.so.1[23]",
    "/usr/local/cuda-1[23]*/targets/*/lib/libcupti.so.1[23]",
};

static void *open_by_name(int more_flags) {
  for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
    void *library = dlopen(names[at], RTLD_LAZY | RTLD_LOCAL | more_flags);
    if (library) return library;
  }
  return NULL;
}

static void *open_by_place(void) {
  for (size_t at = 0; at < sizeof places / sizeof *places; at++) {
    glob_t found;
    void *library = NULL;
    if (glob(places[at], 0, NULL, &found) == 0) {
      for (size_t which = found.gl_pathc; which-- > 0 && !library;) /* the newest first */
        library = dlopen(found.gl_pathv[which], RTLD_LAZY | RTLD_LOCAL);
      globfree(&found);
    }
    if (library) return library;
  }
  return NULL;
}

static void *open_library(void) {
  if (settings()->cupti) return dlopen(settings()->cupti, RTLD_LAZY | RTLD_LOCAL); /* who names one means that one */
  void *library = open_by_name(RTLD_NOLOAD);
  if (!library) library = open_by_name(0);
  return library ? library : open_by_place();
}

/* A function of the library into the table; ISO C has no cast for it. */
static bool find(void *library, const char *name, void *slot) {
  void *symbol = dlsym(library, name);
  memcpy(slot, &symbol, sizeof symbol);
  return symbol != NULL;
}

/* Versions whose kernel records are known: 24 to 28 are CUDA 12.6 to 12.9 update 1, then xxyyzz. */
static bool known(uint32_t version) {
  return version == 24 || (version >= 26 && version <= 28) || (version >= 130000 && version <= 130599);
}

bool load_cupti(void) {
  void *library = open_library();
  bool whole = library != NULL;
#define FIND(name) whole = whole && find(library, "cupti" #name, &cupti.name)
  FIND(GetVersion);
  FIND(GetTimestamp);
  FIND(Subscribe);
  FIND(Unsubscribe);
  FIND(EnableCallback);
  FIND(ActivityRegisterCallbacks);
  FIND(ActivityEnable);
  FIND(ActivityDisable);
  FIND(ActivityFlushAll);
  FIND(ActivityGetNextRecord);
  FIND(ActivityGetNumDroppedRecords);
#undef FIND
  find(library, "cuptiActivityRegisterTimestampCallback", &cupti.ActivityRegisterTimestampCallback);
  if (!whole) {
    set_state(STATE_NO_CUPTI, 0);
    return false;
  }
  cupti.library = library;
  Dl_info about;
  if (dladdr((void *)cupti.GetVersion, &about)) cupti.path = about.dli_fname;
  CUptiResult result = cupti.GetVersion(&cupti.version); /* some releases refuse where there is no driver */
  if (result != CUPTI_SUCCESS)
    set_state(STATE_CUPTI_ERROR, result);
  else if (!known(cupti.version))
    set_state(STATE_UNKNOWN_CUPTI_VERSION, 0);
  return result == CUPTI_SUCCESS && known(cupti.version);
}
