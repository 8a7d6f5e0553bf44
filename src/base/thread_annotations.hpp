// Names for clang's thread-safety attributes. The clang build (-Wthread-safety) checks them; other compilers
// see nothing. Every field that a lock protects carries CUPOOL_GUARDED_BY, every function that expects it
// held CUPOOL_REQUIRES.
#pragma once

#if defined(__clang__)
#define CUPOOL_ANNOTATE(x) __attribute__((x))
#else
#define CUPOOL_ANNOTATE(x)
#endif

#define CUPOOL_CAPABILITY(name) CUPOOL_ANNOTATE(capability(name))
#define CUPOOL_SCOPED_CAPABILITY CUPOOL_ANNOTATE(scoped_lockable)
#define CUPOOL_GUARDED_BY(lock) CUPOOL_ANNOTATE(guarded_by(lock))
#define CUPOOL_ACQUIRE(...) CUPOOL_ANNOTATE(acquire_capability(__VA_ARGS__))
#define CUPOOL_TRY_ACQUIRE(...) CUPOOL_ANNOTATE(try_acquire_capability(__VA_ARGS__))
#define CUPOOL_RELEASE(...) CUPOOL_ANNOTATE(release_capability(__VA_ARGS__))
#define CUPOOL_REQUIRES(...) CUPOOL_ANNOTATE(requires_capability(__VA_ARGS__))
#define CUPOOL_ACQUIRED_BEFORE(...) CUPOOL_ANNOTATE(acquired_before(__VA_ARGS__))
#define CUPOOL_RETURN_CAPABILITY(lock) CUPOOL_ANNOTATE(lock_returned(lock))
#define CUPOOL_EXCLUDES(...) CUPOOL_ANNOTATE(locks_excluded(__VA_ARGS__))
#define CUPOOL_NO_THREAD_SAFETY_ANALYSIS CUPOOL_ANNOTATE(no_thread_safety_analysis)
