/* Another client of CUPTI, linked to it as a framework is: subscribes, registers its own buffers, and lets go again. */
#include <stdint.h>
#include <stdlib.h>

int cuptiSubscribe(void **handle, void (*callback)(void *, int, uint32_t, const void *), void *userdata);
int cuptiUnsubscribe(void *handle);
int cuptiActivityRegisterCallbacks(void (*requested)(uint8_t **, size_t *, size_t *),
                                   void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t));
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void));
int cuptiFinalize(void);

static void *handle;
static long got;

static void ignore(void *userdata, int domain, uint32_t cbid, const void *data) {
  (void)userdata, (void)domain, (void)cbid, (void)data;
}

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  *size = 1 << 16;
  *buffer = aligned_alloc(8, *size);
  *most = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size;
  got += (long)valid;
  free(buffer);
}

static uint64_t ticks(void) { return 12345; }

/* 0, or the first result that was none. */
int client_start(int subscribes) {
  int result = subscribes ? cuptiSubscribe(&handle, ignore, NULL) : 0;
  if (!result) result = cuptiActivityRegisterCallbacks(requested, completed);
  if (!result) result = cuptiActivityRegisterTimestampCallback(ticks);
  return result ? result : cuptiActivityEnable(10);
}

int client_stop(int subscribed) {
  int result = cuptiActivityDisable(10);
  if (!result) result = cuptiActivityFlushAll(0);
  return result || !subscribed ? result : cuptiUnsubscribe(handle);
}

long client_got(void) { return got; }

/* Where its table says that the function is. */
void *client_finalize(void) { return (void *)cuptiFinalize; }
