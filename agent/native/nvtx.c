/* NVTX_INJECTION64_PATH may name this library: ranges that the program marks become stamps.
 *
 * Numbers and structures from nvtxDetail/nvtxTypes.h and nvToolsExt.h of NVTX 3, which keeps them. */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

#include "lifecycle.h"
#include "settings.h"
#include "stamps.h"

enum { ETID_CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { CORE_RANGE_PUSH_EX = 8, CORE_RANGE_PUSH_A = 9, CORE_RANGE_PUSH_W = 10, CORE_RANGE_POP = 11 };
enum { CORE2_RANGE_PUSH_EX = 4, CORE2_RANGE_POP = 5, CORE2_REGISTER_STRING_A = 10, CORE2_REGISTER_STRING_W = 11 };
enum { CORE2_DOMAIN_CREATE_A = 12, CORE2_DOMAIN_CREATE_W = 13 };
enum { MESSAGE_ASCII = 1, MESSAGE_UNICODE = 2, MESSAGE_REGISTERED = 3 };
enum { WIDE_MOST = 1024 };

typedef void (*function)(void);

struct callbacks_table {
  size_t size;
  int (*get_module)(int module, function ***table, unsigned *length);
};

struct event_attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void *message;
};

/* Wide text as UTF-8 as far as ASCII goes; the locale is the program's. */
static uint64_t wide_name(const wchar_t *text) {
  char narrow[WIDE_MOST];
  size_t at = 0;
  for (; text && text[at] && at < sizeof narrow - 1; at++) narrow[at] = text[at] < 128 ? (char)text[at] : '?';
  narrow[at] = 0;
  return stamps_name(narrow);
}

static uint64_t message_name(const struct event_attributes *event) {
  switch (event ? event->message_type : 0) {
    case MESSAGE_ASCII: return stamps_name(event->message);
    case MESSAGE_UNICODE: return wide_name(event->message);
    case MESSAGE_REGISTERED: return (uint64_t)(uintptr_t)event->message;
    default: return stamps_name("");
  }
}

static int push_ascii(const char *text) { return stamp_push(stamps_name(text)); }
static int push_wide(const wchar_t *text) { return stamp_push(wide_name(text)); }
static int push_event(const struct event_attributes *event) { return stamp_push(message_name(event)); }
static int push_in_domain(void *domain, const struct event_attributes *event) {
  (void)domain;
  return stamp_push(message_name(event));
}
static int pop_in_domain(void *domain) {
  (void)domain;
  return stamp_pop();
}

/* A registered string is its made-up pointer. */
static void *register_ascii(void *domain, const char *text) {
  (void)domain;
  return (void *)(uintptr_t)stamps_name(text);
}
static void *register_wide(void *domain, const wchar_t *text) {
  (void)domain;
  return (void *)(uintptr_t)wide_name(text);
}

static char any_domain; /* ranges of all domains nest as one */
static void *create_domain(const void *name) {
  (void)name;
  return &any_domain;
}

static void set(function **table, unsigned length, unsigned at, function handler) {
  if (at < length && table[at]) *table[at] = handler;
}

static int fill(const struct callbacks_table *callbacks) {
  function **table;
  unsigned length;
  if (!callbacks->get_module(MODULE_CORE, &table, &length)) return 0;
  set(table, length, CORE_RANGE_PUSH_EX, (function)push_event);
  set(table, length, CORE_RANGE_PUSH_A, (function)push_ascii);
  set(table, length, CORE_RANGE_PUSH_W, (function)push_wide);
  set(table, length, CORE_RANGE_POP, (function)stamp_pop);
  if (!callbacks->get_module(MODULE_CORE2, &table, &length)) return 1;
  set(table, length, CORE2_RANGE_PUSH_EX, (function)push_in_domain);
  set(table, length, CORE2_RANGE_POP, (function)pop_in_domain);
  set(table, length, CORE2_REGISTER_STRING_A, (function)register_ascii);
  set(table, length, CORE2_REGISTER_STRING_W, (function)register_wide);
  set(table, length, CORE2_DOMAIN_CREATE_A, (function)create_domain);
  set(table, length, CORE2_DOMAIN_CREATE_W, (function)create_domain);
  return 1;
}

typedef const void *(*get_table)(uint32_t id);

/* The tool that was here before us goes first, and we leave the ranges to it if it takes them. */
static int next_took(get_table tables) {
  int (*initialize)(get_table);
  void *library = settings()->nvtx_next ? dlopen(settings()->nvtx_next, RTLD_LAZY | RTLD_LOCAL) : NULL;
  void *symbol = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
  memcpy(&initialize, &symbol, sizeof symbol);
  return initialize ? initialize(tables) : 0;
}

/* Called by NVTX in the program at its first range. 0: no tool is here. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(get_table tables) {
  if (settings()->nvtx_next && next_took(tables)) return 1;
  if (settings()->disabled || !settings()->stages) return 0;
  const struct callbacks_table *callbacks = tables(ETID_CALLBACKS);
  if (!callbacks || callbacks->size < sizeof *callbacks || !fill(callbacks)) return 0;
  lifecycle_watch();
  stamps_start();
  return 1;
}
