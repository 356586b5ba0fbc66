#include "stamps.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "contexts.h"
#include "cupti.h"
#include "losses.h"
#include "state.h"

/* A ring of many writers and one reader: a cell's turn says whose it is (Vyukov's bounded queue). Openings leave a quarter
 * of it to closings, which is enough for 256 threads with all levels open. */
enum { CELLS = 1 << 16, KEPT_FOR_POPS = CELLS / 4, DEPTH_MOST = 64 };

struct cell {
  _Atomic uint64_t turn; /* position + 1 when written; 0 at first */
  struct stamp stamp;
};

struct names range_names;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of writers of names, and of the start */
static struct cell *_Atomic ring;
static _Atomic uint64_t written, taken;
static _Atomic bool wanted = true;
static int (*_Atomic get_current)(CUcontext *);

static _Thread_local struct {
  uint64_t key;     /* process << 32 | thread */
  uint64_t stamped; /* bit by depth: the opening got a stamp, so the closing needs one */
  uint32_t depth;
  uint32_t correlation; /* of the call that is being made */
  uint32_t last;        /* of the last stamp */
} here;

void stamps_found_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void *symbol = library ? dlsym(library, "cuCtxGetCurrent") : NULL;
  int (*function)(CUcontext *);
  memcpy(&function, &symbol, sizeof symbol);
  atomic_store(&get_current, function);
}

void stamps_start(void) {
  pthread_mutex_lock(&lock);
  if (!atomic_load(&ring)) {
    void *cells = mmap(NULL, CELLS * sizeof(struct cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells != MAP_FAILED) atomic_store(&ring, cells);
  }
  pthread_mutex_unlock(&lock);
}

uint64_t stamps_name(const char *text) {
  if (!text) text = "";
  if (is_context(text)) return atomic_load_explicit(&wanted, memory_order_relaxed) ? context_name(text) : 0;
  uint32_t length = name_length(text);
  uint64_t hash = name_hash(text, length);
  const struct name *name = names_find(&range_names, hash);
  if (!name) {
    pthread_mutex_lock(&lock);
    name = names_find(&range_names, hash);
    if (!name) name = names_add(&range_names, hash, 0, text, length, hash, 0);
    pthread_mutex_unlock(&lock);
  }
  return name ? name->pointer : 0;
}

void stamps_saw_call(uint32_t correlation) { here.correlation = correlation; }

void stamps_forget_thread(void) { memset(&here, 0, sizeof here); }

/* Where the counter stands; 0 where nobody tells. */
static uint32_t draw(void) {
  int (*function)(CUcontext *) = atomic_load_explicit(&get_current, memory_order_relaxed);
  if (!function || inert()) return 0;
  CUcontext context;
  here.correlation = 0;
  function(&context);
  if (here.correlation) here.last = here.correlation;
  return here.correlation;
}

uint32_t stamps_counter(void) { return draw(); }

void stamps_want(bool now) { atomic_store_explicit(&wanted, now, memory_order_relaxed); }

static bool put(uint64_t name, uint32_t correlation, int32_t delta, uint32_t room_left) {
  struct cell *cells = atomic_load_explicit(&ring, memory_order_relaxed);
  uint64_t at = atomic_load_explicit(&written, memory_order_relaxed);
  if (!cells) return false;
  do {
    if (at - atomic_load_explicit(&taken, memory_order_acquire) >= CELLS - room_left) return false;
  } while (!atomic_compare_exchange_weak_explicit(&written, &at, at + 1, memory_order_relaxed, memory_order_relaxed));
  uint64_t time_ns = 0;
  cupti.GetTimestamp(&time_ns);
  if (!here.key) here.key = (uint64_t)getpid() << 32 | (uint32_t)syscall(SYS_gettid);
  struct cell *cell = &cells[at % CELLS];
  cell->stamp = (struct stamp){here.key, name, (int64_t)time_ns, correlation, delta};
  atomic_store_explicit(&cell->turn, at + 1, memory_order_release);
  return true;
}

int stamp_push(uint64_t name) {
  uint32_t depth = here.depth++;
  if (depth >= DEPTH_MOST) return (int)depth;
  here.stamped &= ~(1ull << depth);
  uint32_t correlation = atomic_load_explicit(&wanted, memory_order_relaxed) ? draw() : 0;
  if (!correlation) return (int)depth;
  if (name && put(name, correlation, 1, KEPT_FOR_POPS))
    here.stamped |= 1ull << depth;
  else
    lose(LOST_STAMPS, 2);
  return (int)depth;
}

int stamp_pop(void) {
  if (here.depth == 0) return 0; /* more closings than openings, or the opening was before our time */
  uint32_t depth = --here.depth;
  if (depth >= DEPTH_MOST || !(here.stamped >> depth & 1)) return (int)depth;
  uint32_t correlation = draw();
  if (!correlation) correlation = here.last; /* nobody tells, so nobody sees launches either */
  if (!put(0, correlation, -1, 0)) lose(LOST_STAMPS, 1);
  return (int)depth;
}

uint32_t stamps_take(struct stamp *into, uint32_t most) {
  struct cell *cells = atomic_load(&ring);
  uint32_t count = 0;
  uint64_t at = atomic_load_explicit(&taken, memory_order_relaxed);
  while (cells && count < most && atomic_load_explicit(&cells[at % CELLS].turn, memory_order_acquire) == at + 1)
    into[count++] = cells[at++ % CELLS].stamp;
  atomic_store_explicit(&taken, at, memory_order_release);
  return count;
}
