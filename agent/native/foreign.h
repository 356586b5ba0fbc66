/* Other clients of CUPTI in the process (torch.profiler, say): noticed when they begin, and given way to.
 *
 * CUPTI has room for one client. So the entries for its functions in the tables of the other loaded libraries are made
 * to point here: who subscribes or registers callbacks gets a CUPTI that we have just left, and when it is done we come
 * back.
 * Clients that find the functions with dlsym are not noticed; for them there are spanlite_pause and spanlite_resume. */
#ifndef SPANLITE_FOREIGN_H
#define SPANLITE_FOREIGN_H

#include <stdint.h>

/* Looks at what is loaded now. Not before load_cupti returned true. */
void foreign_watch(void);

/* Looks again if anything was loaded since; regular work of the sender. */
void foreign_step(uint64_t now_ns);

#endif
