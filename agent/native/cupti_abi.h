/* The few types and numbers of CUPTI's binary interface that are used.
 *
 * Written down from cupti_activity.h, cupti_callbacks.h, cupti_result.h and cupti_driver_cbid.h of CUDA 12.9 and 13.5,
 * which agree on all of them. */
#ifndef SPANLITE_CUPTI_ABI_H
#define SPANLITE_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUptiResult;
typedef void *CUcontext;
typedef void *CUpti_SubscriberHandle;

enum {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_MULTIPLE_SUBSCRIBERS = 39,
};

/* CUpti_ActivityKind; kinds lie below 256. */
enum { KIND_MEMCPY = 1, KIND_MEMSET = 2, KIND_KERNEL = 3, KIND_CONCURRENT_KERNEL = 10, KINDS = 256 };

/* A record begins with its kind. CUpti_ActivityKernel9 to 13 have `uint32_t correlationId` and `const char *name` at the
 * same places. */
enum { KERNEL_CORRELATION_OFFSET = 92, KERNEL_NAME_OFFSET = 104, RECORD_ALIGNMENT = 8 };

enum { DOMAIN_DRIVER_API = 1, DOMAIN_RESOURCE = 3 };
enum { RESOURCE_CONTEXT_CREATED = 1 };
enum { DRIVER_cuCtxGetCurrent = 304 };
enum { API_ENTER = 0 };

/* CUpti_CallbackData, what a callback of the driver domain is given. */
struct cupti_callback_data {
  int callback_site;
  const char *function_name;
  const void *function_params;
  void *function_return_value;
  const char *symbol_name;
  CUcontext context;
  uint32_t context_uid;
  uint64_t *correlation_data;
  uint32_t correlation_id;
};

typedef void (*cupti_callback)(void *userdata, int domain, uint32_t cbid, const void *data);
typedef void (*cupti_buffer_requested)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*cupti_buffer_completed)(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

#endif
