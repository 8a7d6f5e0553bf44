"""The C interface does what its header says, from C with weak symbols and from Python with ctypes."""

import json
import sys

import harness

PROGRAM = harness.BUILD / "tests" / "report" / "interface"

SESSION = """
import ctypes
own = ctypes.CDLL(None)
own.cupool_name.restype = own.cupool_version.restype = ctypes.c_char_p
own.cupool_trim.restype = own.cupool_stats_json.restype = ctypes.c_size_t
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
pointer = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(5 << 20)) == 0
value = ctypes.c_uint64()
assert own.cupool_stat(b"live_bytes", ctypes.byref(value)) == 0
print(own.cupool_name().decode(), own.cupool_is_enabled(), value.value)
assert cuda.cuMemFree_v2(pointer) == 0
print(own.cupool_trim(ctypes.c_size_t(0)) > 0)
room = own.cupool_stats_json(None, 0) + 1024
text = ctypes.create_string_buffer(room)
own.cupool_stats_json(text, ctypes.c_size_t(room))
print(text.value.decode())
"""


class InterfaceTest(harness.TestCase):
    def test_a_c_program_finds_every_function_through_weak_symbols(self):
        done = harness.with_cupool([PROGRAM], driver="sim")
        self.assertEqual(0, done.code, done.out + done.err)
        self.assertNotIn("NO", done.out)
        self.assertGreaterEqual(done.out.count("yes"), 20)
        self.assertIn("enabled 1", done.out)

    def test_a_c_program_runs_on_without_the_library(self):
        self.assertEqual("absent\n", harness.run([PROGRAM], driver="sim").out)

    def test_the_interface_says_when_it_is_switched_off(self):
        done = harness.with_cupool([PROGRAM], env={"CUPOOL_BACKEND": "off"}, driver="sim")
        self.assertIn("enabled 0", done.out)

    def test_a_python_session_reads_statistics_and_trims(self):
        self.need_native()
        done = harness.with_cupool([sys.executable, "-c", SESSION], driver="sim")
        self.assertEqual(0, done.code, done.err)
        name, trimmed, text, *_ = done.out.splitlines()
        self.assertEqual(f"cupool 1 {5 << 20}", name)
        self.assertEqual("True", trimmed)
        self.assertEqual(1, json.loads(text)["allocations"])


if __name__ == "__main__":
    harness.main()
