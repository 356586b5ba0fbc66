/* Metrics to a config image: which counters of a chip are read, and in how many passes. */
#ifndef SPANLITE_COUNTERS_CONFIG_H
#define SPANLITE_COUNTERS_CONFIG_H

#include "abi.h"

struct config {
  pm_host *host;         /* also evaluates samples */
  uint8_t *availability; /* which counters the device has */
  uint8_t *image;
  size_t image_size, passes;
};

/* Makes one; after a failure it holds nothing. */
int make_config(int32_t device, const char **metrics, size_t count, struct config *made, char *error, size_t error_size);
void free_config(struct config *made);

/* Chip of a device, a string of CUPTI's; and an image of the counters that it has, to be freed. */
int chip_name(int32_t device, const char **name, char *error, size_t error_size);
int counter_availability(int32_t device, uint8_t **image, char *error, size_t error_size);

#endif
