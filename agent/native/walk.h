/* One pass over the records of a buffer: how many spans, and which kernel names. */
#ifndef SPANLITE_WALK_H
#define SPANLITE_WALK_H

#include <stddef.h>
#include <stdint.h>

struct walked {
  uint32_t whole; /* bytes of whole records; less than was valid where the rest is none */
  uint32_t spans; /* kernels, copies and memory sets among them */
  uint32_t correlation; /* of the last kernel; 0 where there is none */
};

/* Is told each name pointer of a kernel, most of them once a buffer, in the order of the records. */
typedef void (*name_seen)(void *context, const char *name);

struct walked walk(uint8_t *buffer, size_t valid, name_seen seen, void *context);

/* Bytes of a record of a kind, as CUPTI laid it out; 0 while none was met. */
uint32_t record_size(uint32_t kind);

#endif
