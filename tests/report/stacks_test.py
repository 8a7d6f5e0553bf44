"""Call stacks in a trace (CUPOOL_STACKS): of native programs and of Python, on the simulated driver."""

import glob
import os
import re
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import harness
import lab
import trace_blocks

# The innermost frame of the script; where libdw is missing, functions of a program have no names.
NAMED = r"(?:main|.*take|\? in .*script)"

# A program that allocates at known lines, through functions of its own.
PROGRAM = """
import ctypes, sys, threading
cuda = ctypes.{loader}("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


def allocate(size):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    return pointer


class Layer:
    def grow(self):
        return [allocate(
            size) for size in (1000,)]


def outer():
    Layer().grow()


def générateur():
    yield allocate(2000)


outer()
list(générateur())


def in_a_thread():
    cuda.cuCtxSetCurrent(context)
    allocate(3000)


thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()
sorted([1], key=lambda _: allocate(4000).value)
cuda.cuMemFree_v2(ctypes.c_uint64(12345))
"""


def pythons():
    """The interpreters of this machine that the library knows, by version."""
    found = {}
    for path in [sys.executable, *sorted(glob.glob("/usr/bin/python3.*")), *sorted(glob.glob(str(Path.home() / ".pyenv/versions/3.*/bin/python3")))]:
        if not os.access(path, os.X_OK) or path.endswith("config"):
            continue
        said = subprocess.run([path, "-c", "import sys, ctypes; print('%d.%d' % sys.version_info[:2], sys.executable)"], capture_output=True, text=True)
        if said.returncode == 0 and (match := re.match(r"(3\.(?:9|1[0-3])) (.*)", said.stdout)):
            found.setdefault((match[1], os.path.realpath(match[2])), match[2])
    return found


class StacksTest(harness.TestCase):
    def traced(self, command, path="t", **env):
        path = self.scratch / path
        done = harness.with_cupool(command, env={"CUPOOL_TRACE": str(path), "CUPOOL_STACKS": "16", **env}, driver="sim")
        self.assertEqual(0, done.code, done.err)
        read = trace_blocks.Trace(path)
        self.assertEqual(set(), read.unknown)
        return read

    @staticmethod
    def allocated(read, size):
        return [event for event in read.events if event["event"] == "allocated" and event["asked"] == size]

    def test_allocations_frees_waits_and_failures_have_the_stack_of_the_program(self):
        read = self.traced([lab.PROGRAM, "a:x:1000", "a:y:70000", "s", "f:x", "w"])
        for name in ("allocated", "freed", "failed"):
            events = [event for event in read.events if event["event"] == name]
            self.assertTrue(events, name)
            for event in events:
                frames = read.frames(event["stack"])
                # The library's own are not there; the program is, at the top.
                self.assertEqual(os.path.realpath(lab.PROGRAM), os.path.realpath(frames[0][0]), (name, frames))
                self.assertFalse([f for f in frames if "libcupool" in f[0]], frames)
        waited = [event for event in read.events if event["event"] == "waited" and event["ns"]]
        self.assertTrue(all(read.frames(event["stack"]) for event in waited if read.calls[event["call"]].startswith("cuCtxSync")))

    def test_a_system_without_libunwind_has_stacks_too_and_is_told_that_they_take_longer(self):
        # In a namespace of its own, nothing lies where libunwind is.
        found = glob.glob("/usr/lib/*/libunwind.so.8") + glob.glob("/usr/lib64/libunwind.so.8")
        hide = "".join(f"mount --bind /dev/null {path} && " for path in found) + 'exec "$@"'
        alone = ["unshare", "--map-root-user", "--mount", "sh", "-c", hide, "sh"]
        if harness.run([*alone, "true"], driver="sim").code != 0:
            self.skipTest("no namespace can be made here")
        path = self.scratch / "t"
        done = harness.with_cupool([*alone, lab.PROGRAM, "a:x:1000", "f:x"], driver="sim",
                                   env={"CUPOOL_TRACE": str(path), "CUPOOL_STACKS": "16", "CUPOOL_STATS": "off"})
        self.assertEqual((0, 1), (done.code, done.err.count("each call stack takes longer")), done.err)
        read = trace_blocks.Trace(path)
        frames = read.frames(self.allocated(read, 1000)[0]["stack"])
        self.assertEqual(os.path.realpath(lab.PROGRAM), os.path.realpath(frames[0][0]), frames)

    def test_a_library_whose_notes_lie_nowhere_harms_nobody(self):
        library = harness.compile_shared(self.scratch, "odd.so", "int odd(void) { return 1; }", "-Wl,--build-id")
        data = bytearray(library.read_bytes())
        (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
        for at in range(table, table + size * count, size):
            if struct.unpack_from("<I", data, at)[0] == 4:  # PT_NOTE: its address
                struct.pack_into("<Q", data, at + 16, 1 << 40)
        library.write_bytes(data)
        read = self.traced([lab.PROGRAM, f"L:{library}", "a:x:1000"])
        modules = [module for module in read.modules.values() if str(library) in str(module)]
        self.assertEqual(1, len(modules), read.modules)

    def test_small_allocations_have_no_stack_if_the_user_says_so(self):
        read = self.traced([lab.PROGRAM, "a:x:1000", "a:y:2000000", "f:x", "f:y"], CUPOOL_STACKS_MIN="1M")
        self.assertEqual([0], [e["stack"] for e in self.allocated(read, 1000)])
        self.assertTrue(all(e["stack"] for e in self.allocated(read, 2000000)))

    def test_a_trace_kept_in_memory_has_its_stacks_too(self):
        read = self.traced([lab.PROGRAM, "a:x:1000", "a:y:2000000", "f:x", "a:z:1099511627776"], CUPOOL_TRACE_KEEP="4M")
        self.assertTrue(read.frames(self.allocated(read, 1000)[0]["stack"]))

    def test_what_is_held_at_the_end_is_listed_by_stack_the_largest_first(self):
        done = harness.with_cupool([lab.PROGRAM, "a:x:1000", "g:y:5000000", "a:z:70000", "f:z"], driver="sim",
                                   env={"CUPOOL_LEAKS": "yes", "CUPOOL_STATS": "off"})
        self.assertEqual(0, done.code, done.err)
        self.assertRegex(done.err, r"still held at the end: 4\.8 MiB in 2 blocks, the largest holders first:")
        held = re.findall(r"  ([\d.]+ \w+) in 1 block of (\w+) memory, up to \d+ s old, asked for here:\n.*#0 " + NAMED, done.err)
        self.assertEqual([("4.8 MiB", "managed"), ("1 KiB", "pool")], held, done.err)
        done = harness.with_cupool([lab.PROGRAM, "a:x:1000", "f:x"], driver="sim", env={"CUPOOL_LEAKS": "yes", "CUPOOL_STATS": "off"})
        self.assertIn("nothing is held at the end", done.err)

    def test_what_cudas_own_libraries_keep_is_told_apart(self):
        self.need_native()
        source = "int cuMemAlloc_v2(unsigned long long*, unsigned long);\nint take(unsigned long n) { unsigned long long p; return cuMemAlloc_v2(&p, n); }"
        library = harness.compile_shared(self.scratch, "libcublas.so.99", source, "-O2", "-fno-optimize-sibling-calls")
        other = harness.compile_shared(self.scratch, "libmine.so", source, "-O2", "-fno-optimize-sibling-calls")
        program = textwrap.dedent(f"""
            import ctypes
            cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
            context = ctypes.c_void_p()
            cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)
            ctypes.CDLL("{library}").take(4000000)
            ctypes.CDLL("{other}").take(2000000)
        """)
        done = harness.with_cupool([sys.executable, "-c", program], driver="sim", env={"CUPOOL_LEAKS": "yes", "CUPOOL_STATS": "off"})
        self.assertEqual(0, done.code, done.err)
        self.assertRegex(done.err, r"still held at the end: 1\.9 MiB in 1 block,")
        self.assertRegex(done.err, r"besides, libraries of CUDA keep 3\.8 MiB in 1 block for their next calls:\n.* by libcublas\.so\.99")

    def test_names_of_cplusplus_are_plain_though_an_interpreter_alone_has_its_library(self):
        self.need_native()
        source = ('int cuMemAlloc_v2(unsigned long long*, unsigned long);\nint take(unsigned long) __asm__("_ZN4mine4takeEm");\n'
                  "int take(unsigned long n) { unsigned long long p; return cuMemAlloc_v2(&p, n); }")
        library = harness.compile_shared(self.scratch, "libmine.so", source, "-O2", "-fno-optimize-sibling-calls")
        program = textwrap.dedent(f"""
            import ctypes
            cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
            context = ctypes.c_void_p()
            cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)
            getattr(ctypes.CDLL("{library}"), "_ZN4mine4takeEm")(2000000)
            ctypes.CDLL("libstdc++.so.6")
        """)
        done = harness.with_cupool([sys.executable, "-c", program], driver="sim", env={"CUPOOL_LEAKS": "yes", "CUPOOL_STATS": "off"})
        self.assertIn("mine::take(unsigned long)", done.err)

    def test_the_largest_holders_are_named_when_memory_runs_out(self):
        steps = ["a:x:9000000", "a:y:3000000", "a:z:90000000"]
        for env, expected in (({"CUPOOL_STACKS": "16"}, r"11\.5 MiB in 2 blocks of pool memory, up to \d+ s old, asked for here:\n.*#0 " + NAMED),
                              ({}, r"8\.6 MiB in 1 block of 8\.6 MiB of pool memory, by thread \d+, up to \d+ s old\n.* 2\.9 MiB in 1 block")):
            trace = {"CUPOOL_TRACE": str(self.scratch / "t"), "CUPOOL_LIMIT": "32M", "CUPOOL_STATS": "off", **env}
            done = harness.with_cupool([lab.PROGRAM, *steps], driver="sim", env=trace)
            self.assertRegex(done.err, r"this program holds 11\.5 MiB in 2 blocks on device 0, most of it here:\n.* " + expected)

    def test_nvtx_ranges_are_phases_unless_another_tool_is_named(self):
        path = self.scratch / "t"
        bare = harness.run([harness.victim("nvtx")], driver="sim")
        for env, expected in (({}, ["forward", "attention", "", "loss", "", "loading", "copying", ""]), ({"NVTX_INJECTION64_PATH": "/none"}, [])):
            done = harness.with_cupool([harness.victim("nvtx")], driver="sim", env={"CUPOOL_TRACE": str(path), **env})
            self.assertEqual(0, done.code, done.err)
            phases = [event for event in trace_blocks.Trace(path).events if event["event"] == "phase"]
            ours = min((event["thread"] for event in phases), default=0)
            self.assertEqual(expected, [event["name"] for event in phases if event["thread"] == ours])
            # The two that another thread ended.
            self.assertEqual([1, 2] if expected else [], [event["range"] for event in phases if event["thread"] != ours])
            path.unlink()
        # Without a trace nobody is told, as without us.
        self.assertEqual(bare.out, harness.with_cupool([harness.victim("nvtx")], driver="sim").out)

    def test_a_storm_of_loads_threads_forks_and_signals_does_not_hang(self):
        # Libraries of different code and like size, so that one is loaded where another one was.
        libraries = []
        for i in range(3):
            calls = "storm_pair();" * (i + 1)
            source = f"""
                void storm_pair(void);
                __attribute__((constructor)) static void begin(void) {{ storm_pair(); }}
                __attribute__((destructor)) static void end(void) {{ storm_pair(); }}
                static __attribute__((noinline)) void deeper(void (*pair)(unsigned long), int n) {{
                    volatile char room[{64 * (i + 1)}]; room[0] = 0;
                    if (n) deeper(pair, n - 1); else {{ {calls} pair(2000 + {i}); }}
                    room[1] = 0;
                }}
                void work(void (*pair)(unsigned long)) {{ deeper(pair, {3 + i}); }}
            """
            libraries.append(harness.compile_shared(self.scratch, f"library{i}.so", source, "-O2"))
        duration = os.environ.get("STORM_MS", "1500")
        path = self.scratch / "t"
        done = harness.with_cupool([harness.victim("storm"), duration, *libraries], driver="sim",
                                   env={"CUPOOL_TRACE": str(path), "CUPOOL_STACKS": "16"})
        self.assertEqual(0, done.code, done.out + done.err)
        read = trace_blocks.Trace(path)
        self.assertEqual(set(), read.unknown)
        # What a library asks for in its functions has a frame of that library.
        for i in range(3):
            stacks = {event["stack"] for event in self.allocated(read, 2000 + i)} - {0}
            self.assertTrue(stacks)
            for stack in stacks:
                frames = [frame[0] for frame in read.frames(stack)]
                self.assertIn(str(libraries[i]), frames)
        # In constructors and destructors none is taken.
        stacks = {event["stack"] for event in self.allocated(read, 20000)}
        self.assertIn(0, stacks)
        for stack in stacks - {0}:
            self.assertFalse([frame[0] for frame in read.frames(stack) if "/ld-" in frame[0]])

    def test_python_frames_are_named_at_their_lines(self):
        if harness.EMULATOR:
            self.skipTest("the interpreters here are not of the machine that is emulated")
        program = self.scratch / "program.py"
        tried = 0
        for (version, path), python in pythons().items():
            for loader in ("CDLL", "PyDLL"):  # without and with the interpreter's lock
                program.write_text(PROGRAM.format(loader=loader))
                lines = program.read_text().splitlines()
                read = self.traced([python, program])

                def line_of(part):
                    return next(number for number, line in enumerate(lines, 1) if part in line)

                def seen(size):
                    events = self.allocated(read, size)
                    self.assertEqual(1, len(events), (python, loader))
                    return [(name.rsplit(".", 1)[-1], line) for name, file, line in read.python(events[0]["stack"]) if file == str(program)]

                with self.subTest(version=version, python=path, loader=loader):
                    tried += 1
                    call = ("allocate", line_of("cuMemAlloc_v2"))
                    first = seen(1000)
                    self.assertEqual(call, first[0])
                    self.assertEqual(("outer", line_of("Layer().grow()")), first[-2])
                    self.assertEqual(("<module>", lines.index("outer()") + 1), first[-1])
                    grow = [line for name, line in first if name == "grow"]
                    self.assertIn(grow, ([line_of("return [allocate(")], [line_of("size) for size in")]))
                    self.assertEqual([call, ("générateur", line_of("yield allocate")), ("<module>", line_of("list(géné"))], seen(2000))
                    self.assertEqual([call, ("in_a_thread", line_of("allocate(3000)"))], seen(3000))
                    self.assertEqual([call, ("<lambda>", line_of("4000")), ("<module>", line_of("4000"))], seen(4000))
                    failed = [event for event in read.events if event["event"] == "failed"][0]
                    self.assertEqual([("<module>", str(program), line_of("cuMemFree_v2"))], read.python(failed["stack"]))
                    # Native frames are there, and the interpreter's loop is not.
                    frames = read.frames(self.allocated(read, 1000)[0]["stack"])
                    self.assertTrue([frame for frame in frames if "ctypes" in frame[0]], frames)
        if tried == 0:
            self.skipTest("no Python is here whose frames are known")


if __name__ == "__main__":
    harness.main()
