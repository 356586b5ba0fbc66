#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void text_line(struct text *text, const char *key, const char *value) {
  if (text->length + strlen(key) + 2 * strlen(value) + 2 > text->room) return;
  char *at = text->start + text->length;
  for (; *key; key++) *at++ = *key == '\n' || *key == '=' || (unsigned char)*key > 126 ? '?' : *key;
  *at++ = '=';
  for (; *value; value++) {
    if (*value == '\\' || *value == '\n') *at++ = '\\';
    *at++ = *value == '\n' ? 'n' : (unsigned char)*value > 126 ? '?' : *value;
  }
  *at++ = '\n';
  text->length = (size_t)(at - text->start);
}

void text_number(struct text *text, const char *key, uint64_t value) {
  char digits[24];
  snprintf(digits, sizeof digits, "%" PRIu64, value);
  text_line(text, key, digits);
}
