#include "cupti.h"

#include <dlfcn.h>
#include <string.h>

#include "open_cupti.h"
#include "settings.h"
#include "state.h"

struct cupti cupti;

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
  void *library = open_cupti(settings()->cupti);
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
