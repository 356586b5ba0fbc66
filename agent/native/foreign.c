#include "foreign.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "collect.h"
#include "cupti.h"
#include "patch.h"
#include "settings.h"

#define LOOK_AGAIN_NS 1000000000ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the two below; CUPTI is not called under it */
static uint64_t kinds[KINDS / 64];                       /* that others have enabled */
static enum { NOBODY, PRESENT, LEAVING } client;

/* The real functions, as the others would have called them. */
static struct {
  CUptiResult (*subscribe)(CUpti_SubscriberHandle *, cupti_callback, void *);
  CUptiResult (*subscribe_v2)(CUpti_SubscriberHandle *, cupti_callback, void *, void *);
  CUptiResult (*unsubscribe)(CUpti_SubscriberHandle);
  CUptiResult (*register_callbacks)(void *, void *);
  CUptiResult (*register_callbacks_v2)(CUpti_SubscriberHandle, void *, void *);
  CUptiResult (*enable)(int);
  CUptiResult (*disable)(int);
  CUptiResult (*flush_all)(uint32_t);
  CUptiResult (*finalize)(void);
} real;

/* Before a client begins something. */
static void came(void) {
  pthread_mutex_lock(&lock);
  bool first = client != PRESENT;
  client = PRESENT;
  pthread_mutex_unlock(&lock);
  if (first) collect_pause(PAUSED_FOR_CLIENT);
}

/* After a client ended something: when no kind of its is on any more we come back, a while after its last word.
 * It may yet fetch its buffers, or go on at once. */
static void ended(void) {
  pthread_mutex_lock(&lock);
  bool leaving = client != NOBODY && !(kinds[0] | kinds[1] | kinds[2] | kinds[3]);
  if (leaving) client = LEAVING;
  pthread_mutex_unlock(&lock);
  if (leaving) collect_client_left(settings()->resume_ns);
}

static void mark(int kind, bool on) {
  if (kind < 0 || kind >= KINDS) return;
  uint64_t bit = 1ull << (kind % 64), *word = &kinds[kind / 64];
  pthread_mutex_lock(&lock);
  *word = on ? *word | bit : *word & ~bit;
  pthread_mutex_unlock(&lock);
}

static CUptiResult subscribe(CUpti_SubscriberHandle *handle, cupti_callback callback, void *userdata) {
  came();
  CUptiResult result = real.subscribe(handle, callback, userdata);
  if (result != CUPTI_SUCCESS) ended();
  return result;
}

static CUptiResult subscribe_v2(CUpti_SubscriberHandle *handle, cupti_callback callback, void *userdata, void *more) {
  came();
  CUptiResult result = real.subscribe_v2(handle, callback, userdata, more);
  if (result != CUPTI_SUCCESS) ended();
  return result;
}

static CUptiResult unsubscribe(CUpti_SubscriberHandle handle) {
  CUptiResult result = real.unsubscribe(handle);
  ended();
  return result;
}

static CUptiResult register_callbacks(void *requested, void *completed) {
  came();
  return real.register_callbacks(requested, completed);
}

static CUptiResult register_callbacks_v2(CUpti_SubscriberHandle handle, void *requested, void *completed) {
  came();
  return real.register_callbacks_v2(handle, requested, completed);
}

static CUptiResult enable(int kind) {
  came();
  CUptiResult result = real.enable(kind);
  if (result == CUPTI_SUCCESS) mark(kind, true);
  return result;
}

static CUptiResult disable(int kind) {
  CUptiResult result = real.disable(kind);
  mark(kind, false);
  ended();
  return result;
}

static CUptiResult flush_all(uint32_t flag) {
  CUptiResult result = real.flush_all(flag);
  ended();
  return result;
}

static CUptiResult finalize(void) {
  came();
  CUptiResult result = real.finalize();
  for (int kind = 0; kind < KINDS; kind++) mark(kind, false);
  ended();
  return result;
}

static struct patch patches[] = {
    {"cuptiSubscribe", (void *)subscribe, &real.subscribe},
    {"cuptiSubscribe_v2", (void *)subscribe_v2, &real.subscribe_v2},
    {"cuptiUnsubscribe", (void *)unsubscribe, &real.unsubscribe},
    {"cuptiActivityRegisterCallbacks", (void *)register_callbacks, &real.register_callbacks},
    {"cuptiActivityRegisterCallbacks_v2", (void *)register_callbacks_v2, &real.register_callbacks_v2},
    {"cuptiActivityEnable", (void *)enable, &real.enable},
    {"cuptiActivityDisable", (void *)disable, &real.disable},
    {"cuptiActivityFlushAll", (void *)flush_all, &real.flush_all},
    {"cuptiFinalize", (void *)finalize, &real.finalize},
};

enum { PATCHES = sizeof patches / sizeof *patches };

static uint64_t seen, look_at;
static bool watching;

void foreign_watch(void) {
  if (!settings()->give_way) return;
  for (int at = 0; at < PATCHES; at++) {
    void *function = dlsym(cupti.library, patches[at].name);
    memcpy(patches[at].real, &function, sizeof function);
  }
  seen = patch_loaded();
  patch_all(patches, PATCHES, (void *)cupti.GetVersion);
  watching = true;
}

void foreign_step(uint64_t now_ns) {
  if (!watching) return;
  uint64_t loaded = patch_loaded();
  if (loaded != seen) {
    seen = loaded;
    look_at = now_ns + LOOK_AGAIN_NS; /* the loader may still be at work on it, and overwrite what we write */
  } else if (!look_at || now_ns < look_at) {
    return;
  } else {
    look_at = 0;
  }
  patch_all(patches, PATCHES, (void *)cupti.GetVersion);
}
