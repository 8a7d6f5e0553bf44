"""In a sanitized build: what the sanitizer finds fails a test, in a program of ours and in one that only loads our library."""

import subprocess

import harness
import sanitizer

OVERFLOW = r"""
#include <stdlib.h>
static void fault(void) { volatile char* p = malloc(4); p[4] = 1; free((void*)p); }
"""

UNDEFINED = r"""
static volatile int large = 0x7fffffff;
static void fault(void) { large = large + 1; }
"""

RACE = r"""
#include <pthread.h>
static int shared;
static void* count(void* to) { for (int i = 0; i < 10000; ++i) ++*(volatile int*)to; return 0; }
static void fault(void) {
  pthread_t one, two;
  pthread_create(&one, 0, count, &shared);
  pthread_create(&two, 0, count, &shared);
  pthread_join(one, 0);
  pthread_join(two, 0);
}
"""

SOUND = "static void fault(void) {}\n"


class SanitizerTest(harness.TestCase):
    def build(self, source, *flags):
        """One file with the sanitizer of this build in it."""
        path = self.scratch / "made"
        subprocess.run([harness.COMPILER, "-x", "c", "-", "-o", path, f"-fsanitize={harness.SANITIZE}", "-g", *flags],
                       input=source, text=True, check=True, capture_output=True)
        return path

    def play(self, source):
        """Runs the fault in an instrumented program, then in a library that a foreign program loads."""
        program = self.build(source + "int main(void) { fault(); return 0; }\n")
        yield lambda: harness.run([program], preload=[harness.LIBRARY])
        library = self.build(source + "__attribute__((constructor)) static void begin(void) { fault(); }\n", "-shared", "-fPIC")
        yield lambda: harness.run(["true"], preload=[library])

    def test_what_a_sanitizer_finds_fails_the_test(self):
        for source in (RACE,) if sanitizer.THREAD else (OVERFLOW, UNDEFINED):
            for run in self.play(source):
                with self.assertRaises(AssertionError, msg=source):
                    run()

    def test_a_sanitizer_is_silent_where_nothing_is_wrong(self):
        for run in self.play(SOUND):
            self.assertEqual((0, "", ""), (run().code, run().out, run().err))


if __name__ == "__main__":
    harness.main()
