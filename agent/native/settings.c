#include "settings.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MS = 1000000, KIB = 1024 };

static struct settings read_once;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A whole number between two bounds, or the default where the variable is none. */
static uint64_t number(const char *name, uint64_t otherwise, uint64_t least, uint64_t most) {
  const char *text = getenv(name);
  if (!text || *text < '0' || *text > '9') return otherwise;
  char *end;
  uint64_t value = strtoull(text, &end, 10);
  if (*end) return otherwise;
  return value < least ? least : value > most ? most : value;
}

/* "0.5": half a percent. "full": no budget. Anything else is one percent. */
static double budget(void) {
  const char *text = getenv("SPANLITE_BUDGET");
  if (text && strcmp(text, "full") == 0) return 0;
  if (!text || *text < '0' || *text > '9') return 0.01;
  char *end;
  unsigned long whole = strtoul(text, &end, 10), part = 0, unit = 1; /* by hand: a locale may want a comma */
  if (*end == '.')
    for (end++; *end >= '0' && *end <= '9' && unit < 1000000; end++, unit *= 10) part = 10 * part + (unsigned)(*end - '0');
  double percent = (double)whole + (double)part / (double)unit;
  return *end || percent <= 0 || percent > 100 ? 0.01 : percent / 100;
}

/* "20/200": on for 20 ms of every 200. Anything else, or more on than the period, is always on. */
static void read_duty(void) {
  const char *text = getenv("SPANLITE_DUTY");
  if (!text) return;
  char *slash, *end;
  uint64_t on = strtoull(text, &slash, 10);
  if (slash == text || *slash != '/') return;
  uint64_t period = strtoull(slash + 1, &end, 10);
  if (end == slash + 1 || *end || on == 0 || on >= period || period > 3600000) return;
  read_once.fixed = true;
  read_once.duty_on_ns = on * MS;
  read_once.duty_period_ns = period * MS;
}

static const char *text_or_null(const char *name) {
  const char *text = getenv(name);
  return text && *text ? text : NULL;
}

static void read_all(void) {
  const char *disable = getenv("SPANLITE_DISABLE"), *stages = getenv("SPANLITE_STAGES");
  const char *give_way = getenv("SPANLITE_GIVE_WAY");
  const uint64_t pid = (uint64_t)getpid();
  read_once.disabled = (disable && strcmp(disable, "1") == 0) || number("SPANLITE_PID", pid, 0, UINT64_MAX) != pid;
  read_once.stages = !(stages && strcmp(stages, "0") == 0);
  read_once.give_way = !(give_way && strcmp(give_way, "0") == 0);
  read_once.cupti = text_or_null("SPANLITE_CUPTI");
  read_once.socket = text_or_null("SPANLITE_SOCKET");
  read_once.runtime_dir = text_or_null("XDG_RUNTIME_DIR");
  read_once.nvtx_next = text_or_null("SPANLITE_NVTX_NEXT");
  read_once.resource = text_or_null("OTEL_RESOURCE_ATTRIBUTES");
  read_once.service = text_or_null("OTEL_SERVICE_NAME");
  read_once.buffer_bytes = number("SPANLITE_BUFFER_KIB", 8192, 16, 32768) * KIB;
  read_once.pool_bytes = number("SPANLITE_POOL_KIB", 65536, 64, 1048576) * KIB;
  read_once.flush_ns = number("SPANLITE_FLUSH_MS", 1000, 0, 3600000) * MS;
  read_once.hung_ns = number("SPANLITE_HUNG_MS", 30000, 10, 3600000) * MS;
  read_once.resume_ns = number("SPANLITE_RESUME_MS", 5000, 1, 3600000) * MS;
  read_once.settle_ns = number("SPANLITE_SETTLE_MS", 3000, 0, 3600000) * MS;
  read_once.no_records_ns = number("SPANLITE_NO_RECORDS_MS", 30000, 1, 3600000) * MS;
  read_once.duty_on_ns = read_once.duty_period_ns = MS;
  read_duty();
  read_once.budget = budget();
}

const struct settings *settings(void) {
  pthread_once(&once, read_all);
  return &read_once;
}
