/* Names that records and stamps point to, copied while they are still there, each to be sent once a connection.
 *
 * A log that only grows, and an index into it that is read without a lock. Writers take turns by a lock of theirs. */
#ifndef SPANLITE_NAMES_H
#define SPANLITE_NAMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { NAMES_MOST = 1 << 16, NAME_SLOTS = 1 << 18, NAME_BYTES_MOST = 32 << 20, NAME_LENGTH_MOST = 1 << 16 };

struct name {
  uint64_t pointer; /* as records and stamps have it */
  uint64_t hash;    /* of the text */
  const char *text; /* a copy of ours; not ended by a zero */
  uint32_t length;
  uint32_t ticket;  /* of the buffer that it came with: to be sent before that one, not before those ahead of it */
};

struct name_slot {
  _Atomic uint64_t key;    /* 0: free */
  _Atomic uint32_t entry; /* of the newest name with that key */
};

struct names {
  struct name *log;       /* NAMES_MOST, mapped at first use */
  struct name_slot *slots; /* NAME_SLOTS */
  _Atomic uint32_t count;
  uint64_t bytes;
};

/* The text's length, cut at NAME_LENGTH_MOST, and its hash. */
uint32_t name_length(const char *text);
uint64_t name_hash(const char *text, uint32_t length);

/* The newest name of a key; NULL where there is none. Any thread. */
const struct name *names_find(struct names *names, uint64_t key);

/* Appends a copy of the text. NULL when the log is full: the name is never sent. One writer at a time.
 *
 * pointer 0 stands for a made-up pointer, which no address can equal. */
const struct name *names_add(struct names *names, uint64_t key, uint64_t pointer, const char *text, uint32_t length,
                             uint64_t hash, uint32_t ticket);

#endif
