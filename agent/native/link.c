#include "link.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "now.h"
#include "permission.h"
#include "settings.h"
#include "state.h"

struct header {
  char magic[4];
  uint8_t type, version;
  uint16_t flags;
  uint32_t length, sequence;
};

static _Atomic int link_fd = -1; /* read by the child of a fork, which closes its copy */
static uint32_t sequence;
static _Atomic uint64_t hurry_until = UINT64_MAX;

static bool open_at(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return false;
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
    close(fd);
    return false;
  }
  sequence = 0;
  atomic_store(&link_fd, fd);
  return true;
}

bool link_open(void) {
  if (settings()->socket) return open_at(settings()->socket);
  if (open_at("/run/spanlite/agent.sock")) return true;
  if (!settings()->runtime_dir) return false;
  char path[sizeof ((struct sockaddr_un *)0)->sun_path];
  int length = snprintf(path, sizeof path, "%s/spanlite/agent.sock", settings()->runtime_dir);
  return length > 0 && (size_t)length < sizeof path && open_at(path);
}

bool link_is_open(void) { return atomic_load(&link_fd) >= 0; }

void link_close(void) {
  int fd = atomic_exchange(&link_fd, -1);
  if (fd >= 0) close(fd);
}

void link_hurry(uint64_t until_ns) { atomic_store(&hurry_until, until_ns); }

static enum sent give_up(enum sent how) {
  link_close();
  return how;
}

/* Whether the agent is still there. A socket that is closed with bytes unread gives its peer a reset, else an end. */
bool link_check(void) {
  char byte;
  int fd = atomic_load(&link_fd);
  if (fd < 0) return false;
  ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) link_close();
  return link_is_open();
}

enum { SAYS_SPEAK = 0x11, SAYS_REST = 0x13 }; /* as a terminal starts and stops what it is sent */

enum word link_word(void) {
  enum word last = WORD_NONE;
  char bytes[16];
  ssize_t got;
  while ((got = recv(atomic_load(&link_fd), bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
    for (ssize_t at = 0; at < got; at++)
      last = bytes[at] == SAYS_SPEAK ? WORD_SPEAK : bytes[at] == SAYS_REST ? WORD_REST : last;
  if (got == 0) link_close();
  return last;
}

/* Time is up: for this frame, or for the process. */
static bool too_late(uint64_t until_ns) {
  uint64_t now = monotonic_ns();
  return inert() || now > until_ns || now > atomic_load(&hurry_until);
}

/* All bytes of up to two parts; on anything but SENT the connection is closed. */
static enum sent put(int fd, struct iovec parts[2]) {
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  uint64_t until = monotonic_ns() + settings()->hung_ns;
  while (parts[0].iov_len + parts[1].iov_len) {
    ssize_t went = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (went >= 0) {
      until = monotonic_ns() + settings()->hung_ns;
      for (int at = 0; at < 2; at++) {
        size_t part = (size_t)went < parts[at].iov_len ? (size_t)went : parts[at].iov_len;
        parts[at].iov_base = (char *)parts[at].iov_base + part;
        parts[at].iov_len -= part;
        went -= (ssize_t)part;
      }
    } else if (errno == EAGAIN || errno == ENOBUFS) {
      struct pollfd writable = {fd, POLLOUT, 0};
      poll(&writable, 1, 20);
    } else if (errno != EINTR) {
      return give_up(SENT_CLOSED);
    }
    if (parts[0].iov_len + parts[1].iov_len && too_late(until)) return give_up(SENT_HUNG);
  }
  return SENT;
}

static enum sent begin(int fd, enum frame type, const void *payload, size_t length, size_t kept_back) {
  struct header header = {"SPLF", (uint8_t)type, 1, 0, (uint32_t)length, sequence++};
  struct iovec parts[2] = {{&header, sizeof header}, {(void *)(uintptr_t)payload, length - kept_back}};
  return put(fd, parts);
}

enum sent link_send(enum frame type, const void *payload, size_t length) {
  int fd = atomic_load(&link_fd);
  return fd < 0 ? SENT_CLOSED : begin(fd, type, payload, length, 0);
}

/* Waits until the agent has read all that was sent; SENT_CLOSED if it hung up before it had. */
static enum sent wait_for_reading(int fd) {
  uint64_t until = monotonic_ns() + settings()->hung_ns;
  int unread = 0, before = -1;
  for (;;) {
    char byte;
    bool known = ioctl(fd, SIOCOUTQ, &unread) == 0;
    ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (got < 0 && errno != EAGAIN && errno != EINTR) return SENT_CLOSED;
    if (!known || unread == 0) return SENT; /* an end that came after is the next frame's affair */
    if (unread != before) until = monotonic_ns() + settings()->hung_ns;
    before = unread;
    if (too_late(until)) return SENT_HUNG;
    struct pollfd closed = {fd, 0, 0};
    poll(&closed, 1, 1);
  }
}

/* What lies in a socket cannot be taken back: an agent that wakes up would take what has been told as lost. So the last
 * byte is kept back until the rest has been read, and goes out unread only where nobody will tell any more. */
enum sent link_deliver(enum frame type, const void *payload, size_t length) {
  int fd = atomic_load(&link_fd);
  if (fd < 0) return SENT_CLOSED;
  enum sent sent = begin(fd, type, payload, length, 1);
  if (sent != SENT) return sent;
  sent = wait_for_reading(fd);
  bool leaving = monotonic_ns() > atomic_load(&hurry_until);
  if (sent == SENT_CLOSED || (sent == SENT_HUNG && !leaving)) return give_up(sent);
  struct iovec last[2] = {{(char *)(uintptr_t)payload + length - 1, 1}, {NULL, 0}};
  sent = put(fd, last);
  if (sent != SENT) return sent;
  sent = wait_for_reading(fd);
  if (sent == SENT) return SENT;
  return give_up(sent == SENT_HUNG ? SENT : sent); /* hung over the last byte alone: the frame is the agent's */
}
