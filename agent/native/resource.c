#include "resource.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "settings.h"

enum { ATTRIBUTE_MOST = 1024 };

static void write_attribute(struct text *text, const char *start, size_t length) {
  char line[ATTRIBUTE_MOST], key[ATTRIBUTE_MOST + sizeof "resource."];
  if (length >= sizeof line) return;
  memcpy(line, start, length);
  line[length] = 0;
  char *equals = strchr(line, '=');
  if (!equals || equals == line) return;
  *equals = 0;
  snprintf(key, sizeof key, "resource.%s", line);
  text_line(text, key, equals + 1);
}

void resource_write(struct text *text) {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) {
    path[length] = 0;
    const char *slash = strrchr(path, '/');
    text_line(text, "resource.process.executable.name", slash ? slash + 1 : path);
  }
  for (const char *at = settings()->resource; at && *at;) {
    size_t piece = strcspn(at, ",");
    write_attribute(text, at, piece);
    at += piece + (at[piece] == ',');
  }
  if (settings()->service) text_line(text, "resource.service.name", settings()->service);
}
