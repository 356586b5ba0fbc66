#include "open_cupti.h"

#include <dlfcn.h>
#include <glob.h>
#include <stddef.h>

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

void *open_cupti(const char *path) {
  if (path) return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  void *library = open_by_name(RTLD_NOLOAD);
  if (!library) library = open_by_name(0);
  return library ? library : open_by_place();
}
