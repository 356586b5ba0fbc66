/* Binds to the oldest version of each function that a newer glibc moved or renewed, so that a library built today loads
 * on glibc 2.17. Included ahead of every source. */
#ifndef SPANLITE_GLIBC_FLOOR_H
#define SPANLITE_GLIBC_FLOOR_H

#if defined(__x86_64__) && defined(__linux__) && !defined(SPANLITE_SANITIZED)
#define FLOOR(name, version) __asm__(".symver " #name "," #name "@GLIBC_" version)
FLOOR(dladdr, "2.2.5");
FLOOR(dlerror, "2.2.5");
FLOOR(dlopen, "2.2.5");
FLOOR(dlsym, "2.2.5");
FLOOR(glob, "2.2.5");
FLOOR(globfree, "2.2.5");
FLOOR(pthread_condattr_setclock, "2.3.3");
FLOOR(pthread_create, "2.2.5");
FLOOR(pthread_detach, "2.2.5");
FLOOR(pthread_once, "2.2.5");
FLOOR(pthread_setname_np, "2.12");
FLOOR(pthread_sigmask, "2.2.5");
#undef FLOOR
#endif

#endif
