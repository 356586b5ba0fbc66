/* CUPTI's functions, found at run time: the library is not linked. */
#ifndef SPANLITE_CUPTI_H
#define SPANLITE_CUPTI_H

#include <stdbool.h>

#include "cupti_abi.h"

struct cupti {
  CUptiResult (*GetVersion)(uint32_t *version);
  CUptiResult (*GetTimestamp)(uint64_t *timestamp);
  CUptiResult (*Subscribe)(CUpti_SubscriberHandle *subscriber, cupti_callback callback, void *userdata);
  CUptiResult (*Unsubscribe)(CUpti_SubscriberHandle subscriber);
  CUptiResult (*EnableCallback)(uint32_t enable, CUpti_SubscriberHandle subscriber, int domain, uint32_t cbid);
  CUptiResult (*ActivityRegisterCallbacks)(cupti_buffer_requested requested, cupti_buffer_completed completed);
  CUptiResult (*ActivityEnable)(int kind);
  CUptiResult (*ActivityDisable)(int kind);
  CUptiResult (*ActivityFlushAll)(uint32_t flag);
  CUptiResult (*ActivityGetNextRecord)(uint8_t *buffer, size_t valid, uint8_t **record);
  CUptiResult (*ActivityGetNumDroppedRecords)(CUcontext context, uint32_t stream, size_t *dropped);
  CUptiResult (*ActivityRegisterTimestampCallback)(uint64_t (*clock)(void)); /* NULL before CUPTI 11.6 */
  uint32_t version;   /* as GetVersion gave it */
  void *library;      /* as dlopen gave it */
  const char *path;   /* of the library, NULL where that is not known */
};

/* Filled by load_cupti; not to be used before it returned true. */
extern struct cupti cupti;

/* Finds libcupti and its functions, once. False: the state is no_cupti, unknown_cupti_version or cupti_error_N.
 *
 * Searched in this order: $SPANLITE_CUPTI, a libcupti that the process has loaded already (a framework brings the one
 * that it works with), the loader's path, /usr/local/cuda. */
bool load_cupti(void);

#endif
