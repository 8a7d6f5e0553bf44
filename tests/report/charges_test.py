"""The table of all device memory that the driver charges a process adds up to what NVML says, and tells who took what."""

import re
import sys

import harness
from lab import PROGRAM

MIB = 1 << 20
CONTEXT, MODULE, KERNEL = 96 * MIB, 4 * MIB, 6 * MIB  # what CUPOOL_SIM_CHARGES makes them take

BEGIN = """
import ctypes, os, signal, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
own = ctypes.CDLL(None)
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
def out(kind=ctypes.c_void_p):
    return kind()
at = ctypes.byref
def size(bytes):
    return ctypes.c_size_t(bytes)
def charge(part, device=0):
    bytes = ctypes.c_int64()
    result = own.cupool_device_charge(device, part.encode(), at(bytes))
    return bytes.value if result == 0 else f"error {result}"
context, module, kernel, block = out(), out(), out(), out(ctypes.c_uint64)
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", at(context), 0)
call("cuCtxSetCurrent", context)
def load():
    call("cuModuleLoadData", at(module), b"code")
    call("cuModuleGetFunction", at(kernel), module, b"spin")
def launch():
    ns = ctypes.c_ulonglong(0)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    call("cuCtxSynchronize")
call("cuMemAlloc_v2", at(block), size(8 << 20))
"""
ROW = re.compile(r"^cupool: (\w+) +(-?\d+)  ", re.MULTILINE)


class ChargesTest(harness.TestCase):
    def play(self, program, *, code=0, **env):
        self.need_native()
        settings = {"CUPOOL_STATS": "text", "CUPOOL_SIM_CHARGES": "1", **env}
        done = harness.with_cupool([sys.executable, "-c", BEGIN + program], env=settings, driver="sim")
        self.assertEqual(code, done.code, done.out + done.err)
        return done

    @staticmethod
    def table(done, device=0):
        """The rows of a device's table; empty if there is none."""
        _, _, rest = done.err.partition(f"cupool: --- device {device}: ")
        return {name: int(value) for name, value in ROW.findall(rest.partition("cupool: ---")[0])}

    def test_every_byte_that_the_driver_charges_has_a_row_by_who_took_it(self):
        done = self.play("""
load()
launch()
call("cuCtxSetLimit", 1, size(32 << 20))
order = out(ctypes.c_uint64)
call("cuMemAllocAsync", at(order), size(10 << 20), None)
call("cuCtxSynchronize")
""")
        table = self.table(done)
        self.assertIn("the driver charges this process 156 MiB, as NVML says", done.err)
        self.assertEqual((CONTEXT, MODULE, KERNEL), (table["contexts"], table["code"], table["work"]))
        self.assertEqual((32 * MIB, 10 * MIB), (table["limits"], table["stream_ordered"]))
        self.assertEqual(8 * MIB, table["pool_live"] + table.get("pool_cached", 0))
        self.assertEqual(0, table["unexplained"])

    def test_memory_that_the_pool_never_serves_has_rows_of_its_own_and_leaves_them(self):
        program = """
class Shape(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]
array, pool, ordered = out(), out(), out(ctypes.c_uint64)
call("cuArrayCreate_v2", at(array), at(Shape(1 << 20, 16, 1, 1)))
class Location(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("id", ctypes.c_int)]
class Properties(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("handles", ctypes.c_int), ("where", Location), ("rest", ctypes.c_ubyte * 64)]
call("cuMemPoolCreate", at(pool), at(Properties(1, 0, Location(1, 0))))
call("cuMemAllocFromPoolAsync", at(ordered), size(12 << 20), pool, None)
print(charge("charged") >= 0, charge("arrays"), charge("stream_ordered"), charge("unexplained"))
call("cuMemFreeAsync", ordered, None)
call("cuCtxSynchronize")
call("cuMemPoolDestroy", pool)
call("cuArrayDestroy", array)
print(charge("charged") >= 0, charge("arrays"), charge("stream_ordered"), charge("unexplained"))
"""
        done = self.play(program)
        self.assertEqual([f"True {16 * MIB} {12 * MIB} 0", "True 0 0 0"], done.out.splitlines())

    def test_where_nvml_does_not_list_the_process_the_device_is_compared_with_before(self):
        done = self.play("load()", CUPOOL_SIM_NVML="hidden")
        self.assertIn("more are in use than before this process; NVML does not list it", done.err)
        self.assertEqual((CONTEXT, 0), (self.table(done)["contexts"], self.table(done)["unexplained"]))

    def test_without_nvml_the_table_says_that_the_whole_is_not_known(self):
        done = self.play('load()\nprint(charge("charged"), charge("code"), charge("nonsense"))', CUPOOL_SIM_NVML="off")
        self.assertIn("is not known, because there is no NVML to say it", done.err)
        self.assertNotIn("unexplained", self.table(done))
        self.assertEqual(MODULE, self.table(done)["code"])
        self.assertEqual(f"error 801 {MODULE} error 1", done.out.strip())

    def test_what_was_taken_unseen_is_shown_as_unexplained(self):
        # Without the table from the start, nobody looked at the context and the module.
        done = self.play('load()\nprint(charge("charged"), charge("explained"), charge("unexplained"))', CUPOOL_STATS="off")
        charged, explained, unexplained = map(int, done.out.split())
        self.assertEqual((CONTEXT + MODULE + 8 * MIB, 8 * MIB), (charged, explained))
        self.assertEqual(CONTEXT + MODULE, unexplained)

    def test_each_device_has_a_table_with_its_own_context(self):
        done = self.play("""
other = out()
call("cuDevicePrimaryCtxRetain", at(other), 1)
call("cuCtxSetCurrent", other)
call("cuMemAlloc_v2", at(block), size(4 << 20))
load()
""", CUPOOL_SIM_DEVICES="2")
        first, second = self.table(done, 0), self.table(done, 1)
        self.assertEqual((CONTEXT, 0), (first["contexts"], first["unexplained"]))
        self.assertEqual((CONTEXT, MODULE, 0), (second["contexts"], second["code"], second["unexplained"]))

    def test_a_context_that_ends_leaves_nothing_in_its_row(self):
        done = self.play("""
second = out()
call("cuCtxCreate_v2", at(second), 0, 0)
print(charge("charged") > 0, charge("contexts"))
call("cuCtxDestroy_v2", second)
call("cuCtxSetCurrent", context)
print(charge("charged") > 0, charge("contexts"), charge("unexplained"))
""")
        self.assertEqual([f"True {2 * CONTEXT}", f"True {CONTEXT} 0"], done.out.splitlines())

    def test_memory_that_goes_with_its_context_moves_no_other_row(self):
        said = 'print(charge("charged") >> 20, charge("contexts") >> 20, charge("work"), charge("pool_live") >> 20, charge("unexplained"))\n'
        done = self.play(f"""
second = out()
call("cuCtxCreate_v2", at(second), 0, 0)
call("cuMemAlloc_v2", at(block), size(40 << 20))
call("cuCtxSetCurrent", context)
call("cuCtxDestroy_v2", second)
{said}
call("cuDevicePrimaryCtxReset_v2", 0)
{said}
call("cuDevicePrimaryCtxRetain", at(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", at(block), size(4 << 20))
{said}
call("cuDevicePrimaryCtxRelease_v2", 0)
call("cuDevicePrimaryCtxRelease_v2", 0)
{said}
call("cuCtxCreate_v2", at(second), 0, 0)
{said}
""")
        self.assertEqual(["104 96 0 8 0", "0 0 0 0 0", "100 96 0 4 0", "0 0 0 0 0", "96 96 0 0 0"], done.out.splitlines())

    def test_a_program_has_a_table_whichever_of_its_calls_comes_to_us_first(self):
        # It links the driver: its first call that is hooked makes a context, and no other is looked at.
        env = {"CUPOOL_STATS": "text", "CUPOOL_SIM_CHARGES": "1"}
        for steps, contexts in ((["a:x:10485760"], 1), (["C", "a:x:10485760"], 2), (["a:x:10485760", "R", "a:y:10485760"], 1)):
            with self.subTest(steps):
                table = self.table(harness.with_cupool([PROGRAM, *steps], env=env, driver="sim"))
                self.assertEqual((contexts * CONTEXT, 0), (table.get("contexts"), table.get("unexplained")))
                self.assertEqual(10 * MIB, table["pool_live"])

    def test_a_thread_without_a_context_is_told_of_what_work_took(self):
        done = self.play("""
load()
launch()
def ask():
    print(charge("charged") > 0, charge("work"), charge("unexplained"))
thread = threading.Thread(target=ask)
thread.start()
thread.join()
""")
        self.assertEqual(f"True {KERNEL} 0", done.out.strip())

    def test_threads_that_load_at_once_leave_nothing_unexplained(self):
        done = self.play("""
def work():
    call("cuCtxSetCurrent", context)
    for _ in range(20):
        mine, held = out(), out(ctypes.c_uint64)
        call("cuModuleLoadData", at(mine), b"code")
        call("cuMemAlloc_v2", at(held), size(3 << 20))
        charge("charged")
threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
""")
        table = self.table(done)
        self.assertEqual(0, table["unexplained"])
        self.assertEqual(80 * MODULE, table["code"] + table.get("work", 0))

    def test_a_report_in_a_signal_handler_says_why_it_has_no_table(self):
        done = self.play('os.kill(os.getpid(), signal.SIGTERM)', code=-15)
        self.assertIn("it cannot be asked in a signal handler", done.err)

    def test_the_driver_is_asked_nothing_more_for_another_report(self):
        # The simulated driver would say so of a context without memory of ours: NVML is opened by this table alone.
        program = 'load()\nprint("nvidia-ml" in open("/proc/self/maps").read())'
        self.assertEqual("False", self.play(program, CUPOOL_STATS="json").out.strip())
        self.assertEqual("True", self.play(program).out.strip())


if __name__ == "__main__":
    harness.main()
