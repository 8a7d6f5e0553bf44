"""Traces that a program, or a signal, switches on and off while it runs, on the simulated driver."""

import os
import signal
import subprocess
import sys
import time

import harness
import lab

COMMAND = harness.BUILD / "cupool"
MIB = 1 << 20

BEGIN = """
import ctypes, os, sys, threading
own = ctypes.CDLL(None)
path = sys.argv[1]
def begin(to=None):
    return own.cupool_trace_begin((to or path).encode())
end = own.cupool_trace_end
print(begin())
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def take(bytes):
    block = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(bytes)) == 0
    return block
def give(block):
    assert cuda.cuMemFree_v2(block) == 0
"""


class TraceSwitchTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.path = self.scratch / "here.trace"

    def play(self, program, **env):
        done = harness.with_cupool([sys.executable, "-c", BEGIN + program, self.path], env=env, driver="sim")
        self.assertEqual((0, ""), (done.code, done.err))
        before_cuda, *rest = done.out.splitlines()
        self.assertEqual("801", before_cuda)
        return rest

    def said(self, *words):
        done = harness.run([COMMAND, *words], driver="sim")
        self.assertEqual((0, ""), (done.code, done.err))
        return done.out

    def test_a_program_switches_its_trace_on_and_off_and_what_it_held_is_told_first(self):
        self.assertEqual(["1 600 0 600", "0 600"], self.play("""
old = take(8 << 20)
print(begin("/nowhere/at/all"), end(), begin(), begin())
young = take(3000)
give(old)
print(end(), end())
take(5 << 20)
"""))
        said = self.said("trace", self.path)
        for line in ("  1 allocated", "  1 freed", "  1 ended", "in 1 block at the end"):
            self.assertIn(line, said)
        self.assertIn("at the beginning: 8 MiB", self.said("diff", self.path))
        self.assertIn("why=it was switched off", self.said("trace", "--dump", self.path))

    def test_a_second_trace_of_one_program_gets_a_file_of_its_own(self):
        self.play("""
for size in (1 << 20, 2 << 20, 3 << 20):
    assert begin() == 0
    take(size)
    assert end() == 0
""")
        names = sorted(path.name for path in self.scratch.iterdir())
        self.assertEqual(3, len(names), names)
        live = sorted(len([line for line in self.said("trace", "--dump", self.scratch / name).splitlines() if " live " in line])
                      for name in names)
        self.assertEqual([0, 1, 2], live)

    def test_threads_that_allocate_while_a_trace_is_switched_agree_with_it(self):
        self.play("""
over = threading.Event()
def work():
    assert cuda.cuCtxSetCurrent(context) == 0
    held = []
    while not over.is_set():
        held.append(take(4096))
        if len(held) > 50: give(held.pop(0))
    for block in held: give(block)
threads = [threading.Thread(target=work) for _ in range(3)]
for one in threads: one.start()
for number in range(5):
    assert begin(f"{path}.{number}") == 0
    for _ in range(200): give(take(1 << 20))
    if number == 4:
        over.set()
        for one in threads: one.join()
    assert end() == 0
print("done")
""")
        for number in range(5):
            self.assertIn("  1 ended", self.said("trace", f"{self.path}.{number}"))
        # At the end of the last one nothing is held any more, whatever the threads did as it began.
        self.assertIn("pool: 0 B in 0 blocks at the end", self.said("trace", f"{self.path}.4"))

    def test_a_signal_switches_the_trace_on_and_off(self):
        lab.needs_signals(self)
        env = {**{name: value for name, value in os.environ.items() if not name.startswith("CUPOOL_")},
               "LD_PRELOAD": harness.preloaded(harness.LIBRARY), "LD_LIBRARY_PATH": str(harness.BUILD / "sim"), **harness.ALONE,
               "CUPOOL_STATS": "off", "CUPOOL_TRACE": str(self.path), "CUPOOL_TRACE_SIGNAL": "USR2"}
        with subprocess.Popen([lab.PROGRAM, "a:x:8000000", "l", "a:y:3000", "l", "a:z:1000", "l"], env=env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            self.addCleanup(program.kill)

            def go_on():
                program.stdin.write("\n")
                program.stdin.flush()
            self.assertEqual("waiting\n", program.stdout.readline())
            self.assertFalse(self.path.exists())
            program.send_signal(signal.SIGUSR2)
            self.until(lambda: self.path.exists() and " live " in self.dump())
            go_on()
            self.assertEqual("waiting\n", program.stdout.readline())
            program.send_signal(signal.SIGUSR2)
            self.until(lambda: "why=it was switched off" in self.dump())
            go_on()
            self.assertEqual("waiting\n", program.stdout.readline())
            go_on()
            self.assertEqual("", program.communicate()[1])
        dump = self.dump()
        self.assertIn("asked=3000", dump)
        self.assertNotIn("asked=1000 ", dump)

    def dump(self):
        return harness.run([COMMAND, "trace", "--dump", self.path], driver="sim").out

    def until(self, holds):
        """Waits for what is to come; the test's own limit ends it."""
        while not holds():
            time.sleep(0.05)


if __name__ == "__main__":
    harness.main()
