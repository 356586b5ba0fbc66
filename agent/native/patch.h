/* Makes calls of a library's functions, out of all other loaded objects, go elsewhere. */
#ifndef SPANLITE_PATCH_H
#define SPANLITE_PATCH_H

#include <stddef.h>
#include <stdint.h>

struct patch {
  const char *name;  /* of the function */
  void *replacement;
  void *real;        /* where the pointer to the real function lies; not patched while that is NULL */
};

/* How many objects were ever loaded. */
uint64_t patch_loaded(void);

/* Redirects the table entries of every object but this one and the one that `library` lies in. Entries that were
 * redirected before stay. Where a second libcupti is loaded, only entries that are bound to the first are touched. */
void patch_all(const struct patch *patches, size_t count, const void *library);

#endif
