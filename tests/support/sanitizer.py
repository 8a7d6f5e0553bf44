"""What a sanitizer asks of whoever starts programs: its runtime in front, its options, an eye on what it says.

In a build without sanitizers everything here is empty.
"""

import functools
import os
import pathlib
import re
import subprocess

SANITIZE = os.environ.get("CUPOOL_TEST_SANITIZE", "")
THREAD = "thread" in SANITIZE

# How many times fewer seeds a test plays than in a plain build, where a run takes a fraction of the time.
FEWER = int(os.environ.get("CUPOOL_TEST_FEWER_SEEDS", "2" if SANITIZE else "1"))

# No program of ours exits with this, so a finding is not taken for an answer.
EXIT_CODE = 66

# - Leaks: cupool and the simulated driver keep memory for the life of the process, and stopping every process to look
#   for leaks takes longer than the process itself. ASAN_OPTIONS=detect_leaks=1 from outside asks for it.
# - Link order: `cupool run` puts the library in front of everything, the runtime too. That is harmless: the library has
#   none of the functions that the runtime replaces but dlsym's kin, and those it passes on.
# - Threads that are left: a program that hangs, or that exits amid the work of others, has them.
# - Descriptors: a thread of ours has a table of its own, in which a number is another file (tsan.supp).
# - The runtime must leave signals and failed allocations to the program as they were.
COMMON = f"exitcode={EXIT_CODE}:allocator_may_return_null=1:handle_abort=0"
OPTIONS = {
    "ASAN_OPTIONS": f"{COMMON}:detect_leaks=0:verify_asan_link_order=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": f"{COMMON}:report_thread_leaks=0:suppressions={pathlib.Path(__file__).with_name('tsan.supp')}",
}

SAID = re.compile(r"(ERROR: AddressSanitizer|WARNING: ThreadSanitizer|FATAL: ThreadSanitizer|runtime error: )")


@functools.cache
def runtime(compiler):
    """The library that must come before every other, in programs that are not built with it above all."""
    if not SANITIZE:
        return []
    name = "libtsan.so" if THREAD else "libasan.so"
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return [os.path.realpath(found.stdout.strip())]


def options():
    """The environment for a program; what is set outside comes last and wins."""
    if not SANITIZE:
        return {}
    return {name: ":".join(filter(None, (value, os.environ.get(name)))) for name, value in OPTIONS.items()}


def fewer(seeds, least=1):
    """This many seeds in a plain build; a share of them here."""
    return max(least, seeds // FEWER)


def assert_silent(command, text):
    """A finding fails the test whatever the program's exit code was: it may have come from one of its children."""
    if SANITIZE and SAID.search(text):
        raise AssertionError(f"{command}\n{text}")
