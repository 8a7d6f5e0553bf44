/* The C interface of cupool. It is there only in a process into which libcupool.so was preloaded: declare the
   functions weak (define CUPOOL_WEAK before this line) and test their addresses, or look them up with dlsym.

   Functions that return int give 0 for success and else a number as the driver API numbers its errors
   (CUresult). All may be called from any thread. Those that change something need a current context only
   where it says so. */
#ifndef CUPOOL_CUPOOL_H
#define CUPOOL_CUPOOL_H

#include <stddef.h>
#include <stdint.h>

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

/* 1 where memory is served by cupool, 0 where it was switched off (CUPOOL_BACKEND=off) and in a forked child
   in which the driver does not work. */
CUPOOL_API int cupool_is_enabled(void);

/* ---- Statistics. Names are those of docs/counters.md. */

/* One counter or figure of the process, such as "peak_live_bytes"; an unknown name is error 1. */
CUPOOL_API int cupool_stat(const char* name, uint64_t* value);

/* The same for one device, by the driver's number. Only what is counted for devices has a name here. */
CUPOOL_API int cupool_device_stat(int device, const char* name, uint64_t* value);

/* Bytes of the device memory that the driver charges this process. "charged" asks the driver and NVML, which
   takes milliseconds; other names tell how it divides at the time of that call: "explained", "unexplained",
   and the rows of the table in docs/stats.md, such as "pool_live" or "contexts". Rows that are seen as
   changes around calls are 0 without CUPOOL_STATS=text. Error 1: no such name; 801: nobody knows. */
CUPOOL_API int cupool_device_charge(int device, const char* part, int64_t* bytes);

/* The whole report as JSON, as at exit, with a terminating zero. Returns the characters it has without that
   zero, like snprintf: where that is `size` or more, the text was cut. */
CUPOOL_API size_t cupool_stats_json(char* text, size_t size);

/* Writes the report now, where and as the options say. */
CUPOOL_API void cupool_write_stats(void);

/* Writes now what a trace has kept in memory (CUPOOL_TRACE_KEEP); without one it does nothing. */
CUPOOL_API void cupool_write_trace(void);

/* Begins a trace, as CUPOOL_TRACE does from the start, in a new file; %p and the like in its name as there.
   What the program holds is told first, without call stacks. Error 1: the file cannot be made; 600: there is
   a trace already, or another thread begins one; 801: the process does not use CUDA. */
CUPOOL_API int cupool_trace_begin(const char* path);

/* Ends the trace, whoever began it; the file is complete then. Error 600: there is none in a file. */
CUPOOL_API int cupool_trace_end(void);

/* A phase of the program, for a trace (CUPOOL_TRACE): a name of up to 63 bytes for what this thread does
   until the phase ends. Phases may lie within each other. Without a trace these do nothing. */
CUPOOL_API void cupool_phase_begin(const char* name);
CUPOOL_API void cupool_phase_end(void);

/* Every peak starts again from what is now. */
CUPOOL_API void cupool_reset_peaks(void);

/* ---- Memory. */

/* Gives free segments back to the driver until at most `bytes` of each context's free memory are kept, and
   as much of its managed memory. Returns the bytes that went back. The driver waits for all work of the
   context. */
CUPOOL_API size_t cupool_trim(size_t bytes);

/* As cupool_trim(0). */
CUPOOL_API size_t cupool_empty_cache(void);

/* From now on as if CUPOOL_MAX_CACHED were `bytes`. */
CUPOOL_API void cupool_set_max_cached(size_t bytes);

/* Work on `stream` uses the block at `pointer` in a way that cupool may not have seen. Call it when that work
   has been submitted, before the block is freed. `stream` is a CUstream or cudaStream_t. Error 1: no block of
   cupool's is there. */
CUPOOL_API int cupool_record_stream(uint64_t pointer, void* stream);

/* ---- The native pool (CUPOOL_BACKEND=native), shared with another process. */

/* A file descriptor that stands for the pool of the current context's device; the caller closes it. Error
   801: the pool was not made for that (CUPOOL_NATIVE_HANDLE=fd). */
CUPOOL_API int cupool_export_pool(int* descriptor);

/* Takes a descriptor that came from cupool_export_pool in another process (over a Unix socket, or by
   pidfd_getfd). The descriptor may be closed afterwards. Error 1: it is not of that kind. */
CUPOOL_API int cupool_import_pool(int descriptor, void** pool);

/* A block of the native pool, as bytes that may travel any way. */
#define CUPOOL_POINTER_BYTES 64
CUPOOL_API int cupool_export_pointer(uint64_t pointer, void* data, size_t size);

/* The same memory in this process. `size` must be CUPOOL_POINTER_BYTES. Free it with cuMemFree before the
 * exporter does. */
CUPOOL_API int cupool_import_pointer(void* pool, const void* data, size_t size, uint64_t* pointer);

#ifdef __cplusplus
}
#endif

#endif
