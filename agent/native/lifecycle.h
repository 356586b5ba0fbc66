/* Beginning, forking, ending. */
#ifndef SPANLITE_LIFECYCLE_H
#define SPANLITE_LIFECYCLE_H

/* From now on forks and the exit are noticed. As often as one likes. */
void lifecycle_watch(void);

#endif
