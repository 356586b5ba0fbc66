/* What the driver tells the imitation of CUPTI to do. */
#ifndef MOCK_CUPTI_H
#define MOCK_CUPTI_H

#include <stddef.h>
#include <stdint.h>

/* What a function returns, the version, how many records were dropped: see `values` in mock_cupti.c. */
void mock_set(const char *key, long value);
long mock_get(const char *key);

/* Writes records into the client's buffers; full ones are completed at once, the rest at a flush. Bytes taken. */
size_t mock_fire(const uint8_t *records, size_t length);

/* Asks for buffers and keeps them until they are released, which completes them empty. */
void mock_hold(int count);
void mock_release(void);

/* What libcuda's initialisation of a context, and one launch, tell a subscriber; the launch's correlation id. */
void mock_context(void);
uint32_t mock_launch(void);

#endif
