/* A program with a GPU, as far as the collector can tell: it does what each line of its input says, and answers.
 *
 *     preload PATH               dlopen, as a framework does with its libcupti and libcuda
 *     arena ADDRESS FILE         kernel names: the file, at that address
 *     poke ADDRESS TEXT          another name in the same place
 *     init PATH                  what cuInit does: loads the collector and calls InitializeInjection
 *     nvtx PATH                  what NVTX does at its first range
 *     cuda RESULT                what libcuda's functions return from now on
 *     set KEY VALUE, get KEY     the imitation of CUPTI
 *     context, launch            the latter answers with the correlation id
 *     fire FILE [TIMES]          answers with the bytes taken
 *     threads N FILE TIMES       several at once
 *     load FILE RATE MS SPANS    so many launches a second of SPANS kernels each, the file's first record; in the end
 *                                the launches and the kernels that ran, recorded or not
 *     flush                      as the program's own cuptiActivityFlushAll
 *     hold N, release
 *     push TEXT, pop, pushex TEXT, pushreg TEXT, pushdomain TEXT, popdomain
 *     bench N                    ns of processor time for so many pushes and pops, five deep
 *     state, pause, resume
 *     client PATH, begin S, finish S, got     another client; S: whether it subscribes; bytes it was given
 *     watched                    whether the other client's entries lead elsewhere than to CUPTI
 *     maps TEXT                  whether a mapped file's name holds the text
 *     tasks, sockets, rss        threads, open sockets, KiB of resident memory
 *     unread                     bytes that lie in sockets and nobody has read
 *     fork [FILE]                the child's state, tasks, sockets, bytes taken of FILE, answer to a push
 *     execute                    how many sockets a program inherits
 *     exit N, _exit N, abort, raise N
 *
 * An end of the input ends main. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void (*function)(void);

static void *mock, *collector, *client;
static const char *mock_path;

static void fail(const char *what) {
  fprintf(stderr, "driver: %s: %s\n", what, dlerror());
  exit(97);
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) fail(name);
  return found;
}

static void *mocked(const char *name) {
  if (!mock) mock = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_NOLOAD);
  if (!mock && mock_path) mock = dlopen(mock_path, RTLD_LAZY);
  if (!mock) fail("no imitation of CUPTI is loaded");
  return symbol(mock, name);
}

static uint8_t *read_file(const char *path, size_t *length) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (fd < 0 || fstat(fd, &about)) fail(path);
  uint8_t *bytes = malloc((size_t)about.st_size + 1);
  size_t at = 0;
  while (at < (size_t)about.st_size) {
    ssize_t got = read(fd, bytes + at, (size_t)about.st_size - at);
    if (got <= 0) fail(path);
    at += (size_t)got;
  }
  close(fd);
  *length = at;
  return bytes;
}

static void arena(uint64_t address, const char *path) {
  size_t length;
  uint8_t *bytes = read_file(path, &length);
  void *at = mmap((void *)(uintptr_t)address, length, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (at != (void *)(uintptr_t)address) fail("the arena's place is taken");
  memcpy(at, bytes, length);
  free(bytes);
}

/* ---------------------------------------------------------------------------------------------------- firing */

struct firing {
  const uint8_t *bytes;
  size_t length, taken;
  int times;
};

static void *fire(void *context) {
  struct firing *firing = context;
  size_t (*mock_fire)(const uint8_t *, size_t) = (size_t (*)(const uint8_t *, size_t))mocked("mock_fire");
  for (int at = 0; at < firing->times; at++) firing->taken += mock_fire(firing->bytes, firing->length);
  return NULL;
}

static size_t fire_file(int threads, const char *path, int times) {
  size_t length, taken = 0;
  uint8_t *bytes = read_file(path, &length);
  pthread_t ids[64];
  struct firing firings[64];
  for (int at = 0; at < threads; at++) {
    firings[at] = (struct firing){bytes, length, 0, times};
    if (at) pthread_create(&ids[at], NULL, fire, &firings[at]);
  }
  fire(&firings[0]);
  for (int at = 0; at < threads; at++) {
    if (at) pthread_join(ids[at], NULL);
    taken += firings[at].taken;
  }
  free(bytes);
  return taken;
}

/* A kernel record of CUPTI 13.4 and later. */
enum { KERNEL_BYTES = 248, START_AT = 16, END_AT = 24, CORRELATION_AT = 92 };

static uint64_t clock_now(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void load(const char *path, long rate, long ms, int spans) {
  size_t length;
  uint8_t *record = read_file(path, &length);
  uint32_t (*launch)(void) = (uint32_t (*)(void))mocked("mock_launch");
  size_t (*mock_fire)(const uint8_t *, size_t) = (size_t (*)(const uint8_t *, size_t))mocked("mock_fire");
  uint64_t begun = clock_now(CLOCK_MONOTONIC), passed;
  long launches = 0;
  while ((passed = clock_now(CLOCK_MONOTONIC) - begun) < (uint64_t)ms * 1000000) {
    for (; launches < (long)((double)passed * 1e-9 * (double)rate); launches++) {
      uint32_t id = launch();
      uint64_t start = clock_now(CLOCK_REALTIME), end = start + 1000;
      memcpy(record + START_AT, &start, sizeof start);
      memcpy(record + END_AT, &end, sizeof end);
      memcpy(record + CORRELATION_AT, &id, sizeof id);
      for (int at = 0; at < spans; at++) mock_fire(record, KERNEL_BYTES);
    }
    usleep(200);
  }
  printf("%ld %ld\n", launches, launches * spans);
  free(record);
}

/* ----------------------------------------------------------------------------------------------- NVTX's tables */

static function core[16], core2[16];
static function *core_slots[16], *core2_slots[16];

static int get_module(int module, function ***table, unsigned *length) {
  for (int at = 0; at < 16; at++) {
    core_slots[at] = &core[at];
    core2_slots[at] = &core2[at];
  }
  *table = module == 1 ? core_slots : module == 5 ? core2_slots : NULL;
  *length = 16;
  return *table != NULL;
}

static const void *export_table(uint32_t id) {
  static const struct {
    size_t size;
    int (*get)(int, function ***, unsigned *);
  } callbacks = {sizeof callbacks, get_module};
  return id == 1 ? &callbacks : NULL;
}

struct event {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void *message;
};

static int push(const char *text) { return core[9] ? ((int (*)(const char *))core[9])(text) : -2; }
static int pop(void) { return core[11] ? ((int (*)(void))core[11])() : -2; }

static int push_event(const char *text, int registered, int domain) {
  struct event event = {.version = 3, .size = sizeof event, .message_type = registered ? 3 : 1, .message = text};
  if (registered) event.message = ((void *(*)(void *, const char *))core2[10])(NULL, text);
  if (!domain) return ((int (*)(const struct event *))core[8])(&event);
  void *handle = ((void *(*)(const char *))core2[12])("driver");
  return ((int (*)(void *, const struct event *))core2[4])(handle, &event);
}

static long bench_push(long count) {
  struct timespec before, after;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  for (long at = 0; at < count; at += 5) {
    for (int depth = 0; depth < 5; depth++) push("decode_step");
    for (int depth = 0; depth < 5; depth++) pop();
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  return (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
}

/* --------------------------------------------------------------------------------------------------- looking */

static int tasks(void) {
  DIR *folder = opendir("/proc/self/task");
  int count = 0;
  for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

/* How many there are, or how much lies in them. */
static int sockets(int unread) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0, bytes = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    struct stat about;
    int fd = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd > 2 && fstat(fd, &about) == 0) count += S_ISSOCK(about.st_mode);
    int some = 0;
    if (entry->d_name[0] != '.' && fd > 2 && ioctl(fd, SIOCOUTQ, &some) == 0) bytes += some;
  }
  closedir(folder);
  return unread ? bytes : count;
}

static long status(const char *key) {
  FILE *file = fopen("/proc/self/status", "re");
  char line[256];
  long value = -1;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, key, strlen(key)) == 0) value = atol(line + strlen(key));
  fclose(file);
  return value;
}

static int mapped(const char *text) {
  FILE *file = fopen("/proc/self/maps", "re");
  char line[4096];
  int found = 0;
  while (fgets(line, sizeof line, file)) found |= strstr(line, text) != NULL;
  fclose(file);
  return found;
}

static const char *state(void) {
  return collector ? ((const char *(*)(void))symbol(collector, "spanlite_state"))() : "absent";
}

static void in_child(int execute, const char *path) {
  pid_t child;
  if (execute) { /* no handler of a fork runs then, as with Python's subprocess */
    const char *count = "for fd in /proc/self/fd/*; do readlink $fd; done | grep -c socket: || true";
    char *words[] = {"sh", "-c", (char *)(uintptr_t)count, NULL};
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ)) fail("posix_spawn");
  } else if ((child = fork()) == 0) {
    size_t taken = path ? fire_file(1, path, 3) : 0;
    printf("%s %d %d %zu %d\n", state(), tasks(), sockets(0), taken, push("in the child"));
    fflush(stdout);
    exit(0); /* with all exit handlers */
  }
  int result = 0;
  waitpid(child, &result, 0);
  if (result) printf("child ended with %d\n", result);
}

/* --------------------------------------------------------------------------------------------------- commands */

static void act(char *line) {
  char *words[5] = {"", "", "", "", ""};
  char *rest = strchr(line, ' ');
  rest = rest ? rest + 1 : line + strlen(line);
  char whole[4096];
  snprintf(whole, sizeof whole, "%s", rest);
  int count = 0;
  for (char *word = strtok(line, " "); word && count < 5; word = strtok(NULL, " ")) words[count++] = word;
#define IS(text) (strcmp(words[0], text) == 0)
  if (IS("preload")) {
    if (!dlopen(words[1], RTLD_LAZY | RTLD_LOCAL)) fail(words[1]);
    printf("ok\n");
  } else if (IS("arena")) {
    arena(strtoull(words[1], NULL, 0), words[2]);
    printf("ok\n");
  } else if (IS("poke")) {
    strcpy((char *)(uintptr_t)strtoull(words[1], NULL, 0), words[2]);
    printf("ok\n");
  } else if (IS("init")) {
    mock_path = getenv("SPANLITE_CUPTI");
    if (!(collector = dlopen(words[1], RTLD_NOW | RTLD_LOCAL))) fail(words[1]);
    printf("%d\n", ((int (*)(void))symbol(collector, "InitializeInjection"))());
  } else if (IS("nvtx")) {
    if (!(collector = dlopen(words[1], RTLD_NOW | RTLD_LOCAL))) fail(words[1]);
    printf("%d\n", ((int (*)(const void *(*)(uint32_t)))symbol(collector, "InitializeInjectionNvtx2"))(export_table));
  } else if (IS("cuda")) {
    *(int *)symbol(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "mock_cuda_result") = atoi(words[1]);
    printf("ok\n");
  } else if (IS("set")) {
    ((void (*)(const char *, long))mocked("mock_set"))(words[1], atol(words[2]));
    printf("ok\n");
  } else if (IS("get")) {
    printf("%ld\n", ((long (*)(const char *))mocked("mock_get"))(words[1]));
  } else if (IS("context")) {
    ((void (*)(void))mocked("mock_context"))();
    printf("ok\n");
  } else if (IS("launch")) {
    printf("%u\n", ((uint32_t (*)(void))mocked("mock_launch"))());
  } else if (IS("fire")) {
    printf("%zu\n", fire_file(1, words[1], *words[2] ? atoi(words[2]) : 1));
  } else if (IS("threads")) {
    printf("%zu\n", fire_file(atoi(words[1]), words[2], atoi(words[3])));
  } else if (IS("load")) {
    load(words[1], atol(words[2]), atol(words[3]), atoi(words[4]));
  } else if (IS("flush")) {
    printf("%d\n", ((int (*)(uint32_t))mocked("cuptiActivityFlushAll"))(0));
  } else if (IS("hold")) {
    ((void (*)(int))mocked("mock_hold"))(atoi(words[1]));
    printf("ok\n");
  } else if (IS("release")) {
    ((void (*)(void))mocked("mock_release"))();
    printf("ok\n");
  } else if (IS("push")) {
    printf("%d\n", push(whole));
  } else if (IS("pop")) {
    printf("%d\n", pop());
  } else if (IS("pushex")) {
    printf("%d\n", push_event(whole, 0, 0));
  } else if (IS("pushreg")) {
    printf("%d\n", push_event(whole, 1, 0));
  } else if (IS("pushdomain")) {
    printf("%d\n", push_event(whole, 0, 1));
  } else if (IS("popdomain")) {
    printf("%d\n", ((int (*)(void *))core2[5])(NULL));
  } else if (IS("bench")) {
    printf("%ld\n", bench_push(atol(words[1])));
  } else if (IS("state")) {
    printf("%s\n", state());
  } else if (IS("pause") || IS("resume")) {
    ((void (*)(void))symbol(collector, IS("pause") ? "spanlite_pause" : "spanlite_resume"))();
    printf("ok\n");
  } else if (IS("client")) {
    if (!(client = dlopen(words[1], RTLD_LAZY | RTLD_LOCAL))) fail(words[1]);
    printf("ok\n");
  } else if (IS("begin") || IS("finish")) {
    printf("%d\n", ((int (*)(int))symbol(client, IS("begin") ? "client_start" : "client_stop"))(atoi(words[1])));
  } else if (IS("got")) {
    printf("%ld\n", ((long (*)(void))symbol(client, "client_got"))());
  } else if (IS("watched")) {
    printf("%d\n", ((void *(*)(void))symbol(client, "client_finalize"))() != mocked("cuptiFinalize"));
  } else if (IS("maps")) {
    printf("%d\n", mapped(words[1]));
  } else if (IS("tasks")) {
    printf("%d\n", tasks());
  } else if (IS("sockets")) {
    printf("%d\n", sockets(0));
  } else if (IS("unread")) {
    printf("%d\n", sockets(1));
  } else if (IS("rss")) {
    printf("%ld\n", status("VmRSS:"));
  } else if (IS("fork")) {
    in_child(0, *words[1] ? words[1] : NULL);
  } else if (IS("execute")) {
    in_child(1, NULL);
  } else if (IS("exit")) {
    exit(atoi(words[1]));
  } else if (IS("_exit")) {
    _exit(atoi(words[1]));
  } else if (IS("abort")) {
    abort();
  } else if (IS("raise")) {
    raise(atoi(words[1]));
  } else {
    printf("what is %s?\n", words[0]);
  }
#undef IS
  fflush(stdout);
}

int main(void) {
  char line[4096];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    act(line);
  }
  return 0;
}
