/* The C interface of cupool. It is there only in a process into which libcupool.so was preloaded: declare the functions
   weak (define CUPOOL_WEAK before this line) and test their addresses, or look them up with dlsym. */
#ifndef CUPOOL_CUPOOL_H
#define CUPOOL_CUPOOL_H

#if defined(CUPOOL_WEAK)
#define CUPOOL_API __attribute__((visibility("default"), weak))
#else
#define CUPOOL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* "cupool". */
CUPOOL_API const char* cupool_name(void);

/* Major, minor and patch, such as "1.2.3". */
CUPOOL_API const char* cupool_version(void);

/* 1 where memory is served by cupool, 0 where it was switched off (CUPOOL_BACKEND=off). */
CUPOOL_API int cupool_is_enabled(void);

#ifdef __cplusplus
}
#endif

#endif
