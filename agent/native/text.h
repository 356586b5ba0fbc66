/* Lines `key=value` of HELLO, STATS and BYE, as docs/frames.md has them. */
#ifndef SPANLITE_TEXT_H
#define SPANLITE_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
  char *start;
  size_t length, room;
};

/* A line that does not fit is left out. What is no ASCII becomes a question mark: the agent takes UTF-8 alone. */
void text_line(struct text *text, const char *key, const char *value);
void text_number(struct text *text, const char *key, uint64_t value);

#endif
