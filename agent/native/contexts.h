/* Ranges whose text is a W3C traceparent: one a request, so that there is no end of them. They are told and forgotten. */
#ifndef SPANLITE_CONTEXTS_H
#define SPANLITE_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

enum { CONTEXT_LENGTH = 55, CONTEXTS_KEPT = 1 << 14 };

/* 00-(32 digits)-(16 digits)-01, by its shape; the agent looks closer. */
bool is_context(const char *text);

/* A made-up pointer for it that no other range has; 0 where so many wait to be told that there is no room. Any thread. */
uint64_t context_name(const char *text);

/* The next one that has not been taken yet; false where there is none. The sender's thread alone. */
bool context_take(uint64_t *pointer, char text[CONTEXT_LENGTH]);

#endif
