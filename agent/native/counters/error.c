#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#include "library.h"

int failed(int code, char *error, size_t error_size, const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (error && error_size) vsnprintf(error, error_size, format, values);
  va_end(values);
  return code;
}

int cupti_failed(CUptiResult result, char *error, size_t error_size, const char *call) {
  const char *word = NULL;
  if (pm.GetResultString(result, &word) != CUPTI_SUCCESS || !word) word = "no name";
  return failed(result, error, error_size, "cupti%s: %s (%d)", call, word, result);
}
