/* Where libcupti is, for the collector and for the counters of GPUs. */
#ifndef SPANLITE_OPEN_CUPTI_H
#define SPANLITE_OPEN_CUPTI_H

/* Opens the one at `path` if there is a path: who names one means that one. Else a libcupti that the process has loaded
 * already (a framework brings the one that it works with), the loader's path, /usr/local/cuda. NULL where there is none. */
void *open_cupti(const char *path);

#endif
