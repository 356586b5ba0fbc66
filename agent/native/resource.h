/* Who the traced process is: OpenTelemetry resource attributes of HELLO. */
#ifndef SPANLITE_RESOURCE_H
#define SPANLITE_RESOURCE_H

#include "text.h"

/* OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES (`key=value,…`) and the program's file name. */
void resource_write(struct text *text);

#endif
