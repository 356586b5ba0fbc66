/* What the environment says, read once. */
#ifndef SPANLITE_SETTINGS_H
#define SPANLITE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct settings {
  bool disabled;            /* SPANLITE_DISABLE=1, or SPANLITE_PID is another: nothing is loaded, nothing is started */
  bool stages;              /* SPANLITE_STAGES=0 switches stamps off */
  bool give_way;            /* SPANLITE_GIVE_WAY=0: other clients of CUPTI are not looked for */
  const char *cupti;        /* SPANLITE_CUPTI: path of libcupti, before all other places */
  const char *socket;       /* SPANLITE_SOCKET */
  const char *runtime_dir;  /* XDG_RUNTIME_DIR */
  const char *nvtx_next;    /* SPANLITE_NVTX_NEXT: the NVTX tool that stood in our place */
  const char *resource;     /* OTEL_RESOURCE_ATTRIBUTES */
  const char *service;      /* OTEL_SERVICE_NAME */
  size_t buffer_bytes;      /* SPANLITE_BUFFER_KIB */
  size_t pool_bytes;        /* SPANLITE_POOL_KIB: of all buffers together */
  uint64_t flush_ns;        /* SPANLITE_FLUSH_MS: between two plain flushes; 0 never */
  uint64_t hung_ns;         /* SPANLITE_HUNG_MS: an agent that takes nothing for so long is hung up on */
  uint64_t resume_ns;       /* SPANLITE_RESUME_MS: so long after the last word of another client we come back */
  uint64_t settle_ns;       /* SPANLITE_SETTLE_MS: so long after the first context CUPTI is first touched */
  uint64_t no_records_ns;   /* SPANLITE_NO_RECORDS_MS: launches for so long and no record of any are worth an alarm */
  double budget;            /* SPANLITE_BUDGET in percent, as a share; 0 (full): kinds are always on */
  bool fixed;               /* SPANLITE_DUTY is set: windows as it says, and no budget */
  uint64_t duty_on_ns;      /* SPANLITE_DUTY=ON/PERIOD in ms, whatever that costs; equal: not set */
  uint64_t duty_period_ns;
};

/* Safe to call from any thread, as often as one likes. */
const struct settings *settings(void);

#endif
