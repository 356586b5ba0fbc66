/* For the sanitizers, which Python is not built with: plays kernels on the imitated GPU.

       driver LIBCUDA BUSY ECHO KERNELS STOP

   BUSY and ECHO are files with the texts of the kernels `axpy` and `spanlite_echo`. STOP: after so many have begun. Writes
   how many were launched, began and were told of. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "enact.h"

enum { QUEUES = 3, LAUNCHES = 2, AT_A_TIME = 5000, TOLD = 1 << 12 };

static struct enactor *enactor;

static int64_t held(int64_t result) {
  if (result >= 0) return result;
  fprintf(stderr, "driver: %s\n", spanlite_enact_error(enactor));
  exit(1);
}

static char *text(const char *path) {
  FILE *file = fopen(path, "rb");
  char *held_text = calloc(1, 1 << 20);
  if (!file || !held_text || !fread(held_text, 1, (1 << 20) - 1, file)) exit(2);
  fclose(file);
  return held_text;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int32_t function(const char *path, const char *name) {
  int32_t registers;
  char *ptx = text(path);
  const int32_t index = (int32_t)held(spanlite_enact_function(enactor, ptx, name, &registers));
  free(ptx);
  return index;
}

/* Pauses of up to 50 us between kernels of up to 100 us: some at a time, some one after the other. */
static void invent(int64_t count, int64_t *due_ns, int64_t *duration_ns, int32_t *queue, int32_t *launch) {
  uint64_t random = 1;
  int64_t at_ns = 0;
  for (int64_t at = 0; at < count; at++) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    at_ns += (int64_t)(random >> 40) % 50000;
    due_ns[at] = at_ns;
    duration_ns[at] = (int64_t)(random >> 20) % 100000;
    queue[at] = (int32_t)((random >> 50) % QUEUES);
    launch[at] = (int32_t)((random >> 55) % LAUNCHES);
  }
}

int main(int argc, char **argv) {
  char why[512];
  if (argc != 6) return 2;
  const int64_t count = atoll(argv[4]), stop = atoll(argv[5]);
  enactor = spanlite_enact_open(argv[1], 0, why, sizeof why);
  if (!enactor) {
    fprintf(stderr, "driver: %s\n", why);
    return 1;
  }
  const int32_t axpy = function(argv[2], "axpy"), echo = function(argv[3], "spanlite_echo");
  const struct launch launches[LAUNCHES] = {{axpy, {132, 1, 1}, {128, 1, 1}, 0}, {axpy, {9999, 2, 1}, {64, 1, 1}, 65536}};
  held(spanlite_enact_launches(enactor, LAUNCHES, launches));
  for (int at = 0; at < QUEUES; at++) held(spanlite_enact_queue(enactor, -at));
  struct calibration found;
  int64_t floors_ns[LAUNCHES], least_ns[LAUNCHES], late_ns[TOLD], told = 0, fed = 0;
  held(spanlite_enact_calibrate(enactor, axpy, echo, &found, floors_ns, least_ns));
  int64_t *due_ns = calloc((size_t)count, sizeof *due_ns), *duration_ns = calloc((size_t)count, sizeof *duration_ns);
  int32_t *queue = calloc((size_t)count, sizeof *queue), *launch = calloc((size_t)count, sizeof *launch);
  if (!due_ns || !duration_ns || !queue || !launch) return 2;
  invent(count, due_ns, duration_ns, queue, launch);
  held(spanlite_enact_begin(enactor, now_ns() + 1000000, 2000000));
  bool stopped = false;
  struct progress stand;
  for (;;) {
    const int64_t left = count - fed < AT_A_TIME ? count - fed : AT_A_TIME;
    fed += held(spanlite_enact_feed(enactor, left, due_ns + fed, duration_ns + fed, queue + fed, launch + fed));
    told += spanlite_enact_started(enactor, TOLD, late_ns);
    spanlite_enact_progress(enactor, &stand);
    if (!stopped && stand.started >= stop) {
      stopped = true;
      spanlite_enact_stop(enactor);
    }
    if ((stopped || fed == count) && held(spanlite_enact_drained(enactor))) break;
    const struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
  }
  for (int64_t more; (more = spanlite_enact_started(enactor, TOLD, late_ns)) > 0;) told += more;
  spanlite_enact_progress(enactor, &stand);
  printf("%ld %ld %ld\n", (long)stand.launched, (long)stand.started, (long)told);
  spanlite_enact_close(enactor);
  free(due_ns);
  free(duration_ns);
  free(queue);
  free(launch);
  return 0;
}
