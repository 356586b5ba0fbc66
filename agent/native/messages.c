#include "messages.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collect.h"
#include "contexts.h"
#include "cupti.h"
#include "gpus.h"
#include "losses.h"
#include "now.h"
#include "resource.h"
#include "settings.h"
#include "stamps.h"
#include "state.h"
#include "text.h"
#include "walk.h"
#include "windows.h"

enum { TEXT_ROOM = 64 << 10, NAMES_ROOM = 256 << 10, STAMPS_AT_ONCE = 4096, CLOCK_TRIES = 8, WINDOWS_AGAIN = 8 };

static char text_room[TEXT_ROOM], names_room[NAMES_ROOM];
static struct stamp stamps_room[STAMPS_AT_ONCE];
static uint32_t kernel_names_sent, range_names_sent; /* on this connection */
static char state_told[32];
static bool named_gpus;
static uint64_t next_window;
static uint32_t mode_told;
static bool price_told;

static struct text empty(void) { return (struct text){text_room, 0, sizeof text_room}; }

/* 64 bits that no other connection has. */
static uint64_t new_session(void) {
  uint64_t bits = 0;
  int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, &bits, sizeof bits) : 0;
  if (fd >= 0) close(fd);
  if (got != sizeof bits) bits = (uint64_t)clock_ns(CLOCK_REALTIME) * 0x9e3779b97f4a7c15 ^ (uint64_t)getpid() << 40;
  return bits;
}

static void remember_mode(struct text *text, const char *key) {
  static const char *const modes[] = {[MODE_NONE] = "none", [MODE_FULL] = "full", [MODE_DUTY_CYCLE] = "duty"};
  text_line(text, key, modes[mode_told = collect_mode()]);
}

static void remember_state(struct text *text, const char *key) {
  snprintf(state_told, sizeof state_told, "%s", state_text());
  text_line(text, key, state_told);
}

enum sent messages_hello(void) {
  struct text text = empty();
  char session[17], key[16];
  snprintf(session, sizeof session, "%016" PRIx64, new_session());
  text_number(&text, "cupti_version", cupti.version);
  text_line(&text, "session", session);
  for (uint32_t kind = 1; kind < KINDS; kind++) {
    snprintf(key, sizeof key, "size.%u", kind);
    if (record_size(kind)) text_number(&text, key, record_size(kind));
  }
  named_gpus = gpus_write(&text);
  resource_write(&text);
  if (cupti.path) text_line(&text, "resource.cupti.path", cupti.path);
  remember_state(&text, "resource.spanlite.collector.state");
  remember_mode(&text, "resource.spanlite.collector.sampling");
  if (collect_asks()) text_number(&text, "resource.spanlite.collector.budget_ppm", (uint64_t)(1e6 * settings()->budget));
  kernel_names_sent = range_names_sent = 0;
  price_told = false;
  uint64_t count = windows_count(); /* records of the last ones may still come */
  next_window = count > WINDOWS_AGAIN ? count - WINDOWS_AGAIN : 0;
  return link_send(FRAME_HELLO, text.start, text.length);
}

bool messages_lack_gpus(void) { return !named_gpus && gpus_known(); }

enum sent messages_clock(void) {
  struct __attribute__((packed)) {
    int64_t cupti_ns, unix_ns;
    uint32_t uncertainty_ns;
  } clock = {0, 0, UINT32_MAX};
  for (int at = 0; at < CLOCK_TRIES; at++) {
    uint64_t cupti_ns;
    int64_t before = clock_ns(CLOCK_REALTIME);
    if (inert() || cupti.GetTimestamp(&cupti_ns) != CUPTI_SUCCESS) return SENT;
    int64_t width = clock_ns(CLOCK_REALTIME) - before;
    if (width < 0 || width / 2 >= clock.uncertainty_ns) continue; /* somebody set the clock, or it took longer */
    clock.cupti_ns = (int64_t)cupti_ns;
    clock.unix_ns = before + width / 2;
    clock.uncertainty_ns = (uint32_t)(width / 2);
  }
  return clock.uncertainty_ns == UINT32_MAX ? SENT : link_send(FRAME_CLOCK, &clock, sizeof clock);
}

/* Names from `*sent` on, as long as they belong to a ticket that has come. */
static enum sent send_names(struct names *names, uint32_t *sent, uint32_t ticket) {
  uint32_t count = atomic_load_explicit(&names->count, memory_order_acquire);
  while (*sent < count) {
    size_t length = 0;
    uint32_t at = *sent;
    for (; at < count; at++) {
      const struct name *name = &names->log[at];
      if ((int32_t)(name->ticket - ticket) > 0 || length + 12 + name->length > sizeof names_room) break;
      memcpy(names_room + length, &name->pointer, 8);
      memcpy(names_room + length + 8, &name->length, 4);
      memcpy(names_room + length + 12, name->text, name->length);
      length += 12 + name->length;
    }
    if (at == *sent) return SENT;
    enum sent result = link_send(FRAME_NAMES, names_room, length);
    if (result != SENT) return result;
    *sent = at;
  }
  return SENT;
}

/* Told before the stamps that name them, and not again. */
static enum sent send_contexts(void) {
  const uint32_t text = CONTEXT_LENGTH;
  size_t length = 0;
  uint64_t pointer;
  while (length + 12 + text <= sizeof names_room && context_take(&pointer, names_room + length + 12)) {
    memcpy(names_room + length, &pointer, 8);
    memcpy(names_room + length + 8, &text, 4);
    length += 12 + text;
  }
  if (!length || !link_is_open()) return SENT;
  enum sent sent = link_send(FRAME_NAMES, names_room, length);
  return sent == SENT ? send_contexts() : sent;
}

enum sent messages_ranges(void) {
  uint32_t count;
  while (!inert() && (count = stamps_take(stamps_room, STAMPS_AT_ONCE))) {
    enum sent sent = send_contexts();
    if (!link_is_open()) continue; /* the spans between them are counted where they are lost */
    if (sent == SENT) sent = send_names(&range_names, &range_names_sent, 0);
    if (sent == SENT) sent = link_send(FRAME_RANGES, stamps_room, count * sizeof *stamps_room);
    if (sent != SENT) return sent;
  }
  return SENT;
}

enum sent messages_windows(void) {
  struct window windows[WINDOWS_AGAIN];
  uint32_t count;
  while (link_is_open() && (count = windows_take(&next_window, windows, WINDOWS_AGAIN))) {
    enum sent sent = link_send(FRAME_WINDOWS, windows, count * sizeof *windows);
    if (sent != SENT) return sent;
  }
  return SENT;
}

enum sent messages_buffer(const struct buffer *buffer) {
  enum sent sent = messages_ranges();
  if (sent == SENT) sent = send_names(&kernel_names, &kernel_names_sent, buffer->ticket);
  return sent == SENT ? link_deliver(FRAME_BUFFER, buffer->bytes, buffer->valid) : sent;
}

enum sent messages_stats(void) {
  if (!link_is_open()) return SENT;
  struct text text = empty();
  uint64_t taken[LOSSES];
  for (int reason = 0; reason < LOSSES; reason++) {
    taken[reason] = take_loss((enum loss)reason);
    if (taken[reason]) text_number(&text, loss_key((enum loss)reason), taken[reason]);
  }
  if (strcmp(state_told, state_text()) != 0) remember_state(&text, "state");
  if (mode_told != collect_mode()) remember_mode(&text, "sampling");
  if (price_told != windows_affordable()) text_line(&text, "affordable", (price_told = windows_affordable()) ? "1" : "0");
  if (!text.length) return SENT;
  enum sent sent = link_deliver(FRAME_STATS, text.start, text.length);
  for (int reason = 0; sent != SENT && reason < LOSSES; reason++) lose((enum loss)reason, taken[reason]);
  return sent;
}

void messages_goodbye(const char *reason) {
  struct text text = empty();
  text_line(&text, "reason", reason);
  link_send(FRAME_BYE, text.start, text.length);
  link_close();
}
