/* The devices of the process, as libcuda numbers them: what records call a device id. */
#ifndef SPANLITE_GPUS_H
#define SPANLITE_GPUS_H

#include <stdbool.h>

#include "text.h"

/* libcuda tells its devices by now. Not to be called while libcuda initialises, from the thread in which it does. */
bool gpus_known(void);

/* The keys gpu.N.*; false if the devices are not known yet. */
bool gpus_write(struct text *text);

/* How many GPUs have their primary context: with one the program does more than to ask for GPUs. */
int gpus_in_use(void);

#endif
