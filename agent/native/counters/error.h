/* What every function of the library returns: 0, a CUptiResult above 0, or one of its own below 0; and a text for it. */
#ifndef SPANLITE_COUNTERS_ERROR_H
#define SPANLITE_COUNTERS_ERROR_H

#include "abi.h"

enum { ERROR_LIBRARY = -1, ERROR_CUDA = -2, ERROR_ARGUMENT = -3, ERROR_PASSES = -4, ERROR_MEMORY = -5 };

/* Writes a text and returns the code. */
__attribute__((format(printf, 4, 5))) int failed(int code, char *error, size_t error_size, const char *format, ...);

/* The same for a call of CUPTI: which one, its number, CUPTI's word for it. */
int cupti_failed(CUptiResult result, char *error, size_t error_size, const char *call);

#endif
