"""What every Python test shares: where things are, how a victim is run, and how one method becomes one ctest test.

A test runs programs through run(), which gives each a clean environment (no CUPOOL_* from outside) and, in a cross build,
puts the emulator in front. It never writes outside its own temporary directory; tests run side by side, so their programs must
not meet in the neighbours' registry either.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass, field
from pathlib import Path

import sanitizer

SOURCE = Path(os.environ["CUPOOL_TEST_SOURCE"])
BUILD = Path(os.environ["CUPOOL_TEST_BUILD"])
COMPILER = os.environ["CUPOOL_TEST_COMPILER"]
CUDA_INCLUDE = Path(os.environ["CUPOOL_TEST_CUDA_INCLUDE"])
SANITIZE = sanitizer.SANITIZE
EMULATOR = os.environ.get("CUPOOL_TEST_EMULATOR", "").split()
DRIVER = os.environ.get("CUPOOL_TEST_DRIVER", "unit")
LIBRARY = BUILD / "libcupool.so"
# For programs that are not about neighbours.
ALONE = {"CUPOOL_NEIGHBOURS": "no"}
SKIPPED = 77


@dataclass
class Result:
    """One finished program: exit code, both streams, and what the simulated device counted."""

    code: int
    out: str
    err: str
    device: dict = field(default_factory=dict)

    def tally(self, name):
        """The counts in a victim's closing line, such as 'linked: allocs=33 frees=32 launches=66 wrong=0'."""
        line = re.search(rf"^{re.escape(name)}: (.*)$", self.out, re.MULTILINE)
        if line is None:
            raise AssertionError(f"no line of {name} in:\n{self.out}\n{self.err}")
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line.group(1))}

    def take_counters(self):
        """The report that CUPOOL_STATS=json left on stderr, one for each process; what else was said stays in err."""
        lines = self.err.splitlines(keepends=True)
        self.err = "".join(line for line in lines if not line.startswith('{"'))
        return [json.loads(line) for line in lines if line.startswith('{"')]


def victim(name):
    """The built victim program or plug-in of that name."""
    return BUILD / "tests" / "victims" / name


def gpu_present():
    """A real driver with a device, asked through a fresh process so that this one stays without CUDA."""
    probe = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int(); " \
            "raise SystemExit(c.cuInit(0) or c.cuDeviceGetCount(ctypes.byref(n)) or n.value == 0)"
    return subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode == 0


def preloaded(*libraries):
    """The value of LD_PRELOAD for these libraries; a sanitizer's runtime comes first."""
    return " ".join(map(str, [*sanitizer.runtime(COMPILER), *libraries]))


def run(command, *, preload=(), env=None, driver=None, cwd=None, stdin=None):
    """Runs a program with exactly the given libraries preloaded, on the simulated driver or the real one."""
    driver = driver or DRIVER
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith("CUPOOL_") and k not in ("LD_PRELOAD", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    environment.update(sanitizer.options())
    loader = {}
    # Ours alone: nothing but the runtime in a program that is not built for it is more than some runtimes can do.
    if preload or (SANITIZE and str(command[0]).startswith(str(BUILD))):
        loader["LD_PRELOAD"] = preloaded(*preload)
    if driver == "sim":
        loader["LD_LIBRARY_PATH"] = str(BUILD / "sim")
    extra = dict(env or {})
    for key in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        if key in extra:
            loader[key] = extra.pop(key)
    if preload:
        environment["CUPOOL_STATS"] = "off"  # the summary at exit is one of the things a test asks for
    if driver != "gpu" and "CUPOOL_NEIGHBOURS_DIR" not in extra:
        environment.update(ALONE)
    environment.update(extra)
    command = [str(word) for word in command]
    if EMULATOR:
        # The emulator itself is a program of this machine: what the loader is told is meant for the guest alone.
        settings = [word for key, value in loader.items() for word in ("-E", f"{key}={value}")]
        command = [*EMULATOR, *settings, *command]
    else:
        environment.update(loader)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "device.json"
        if driver == "sim":
            environment.setdefault("CUPOOL_SIM_REPORT", str(report))
        # On a GPU the default settings are tested, on a registry that no other program has; and exporters of mapped memory
        # have their sockets there.
        environment.setdefault("CUPOOL_NEIGHBOURS_DIR", scratch)
        done = subprocess.run(command, env=environment, cwd=cwd, input=stdin, capture_output=True, text=True,
                              errors="replace", timeout=240, check=False)
        device = json.loads(report.read_text()) if report.exists() else {}
    sanitizer.assert_silent(command, done.stderr)
    return Result(done.returncode, done.stdout, done.stderr, device)


def with_cupool(command, *, env=None, more=(), **options):
    """Runs a program under libcupool.so; `more` are libraries preloaded behind it."""
    return run(command, preload=[LIBRARY, *more], env=env, **options)


def compile_shared(directory, name, source, *flags, language="c"):
    """Builds a shared library for the machine the tests run on, from text."""
    path = Path(directory) / name
    subprocess.run([COMPILER, "-x", language, "-", "-shared", "-fPIC", "-o", path, *flags], input=source, text=True,
                   check=True, capture_output=True)
    return path


class TestCase(unittest.TestCase):
    """unittest with a scratch directory, and skips for what this machine or this build cannot show."""

    maxDiff = None

    def setUp(self):
        self.scratch = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.scratch)
        if DRIVER == "gpu" and not gpu_present():
            self.skipTest("no GPU here")

    def own_registry(self):
        """Settings for programs that meet nobody but each other."""
        place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, place)
        return {"CUPOOL_NEIGHBOURS_DIR": place}

    def mount(self, source, target, kind, flags=0, data=""):
        """Mounts something for this process and its children alone; skips where that is not allowed."""
        system = ctypes.CDLL(None, use_errno=True)
        new_mounts, private, recursive = 0x20000, 1 << 18, 1 << 14
        words = (str(word).encode() for word in (source, target, kind))
        if system.unshare(new_mounts) or system.mount(b"none", b"/", None, private | recursive, None) or \
                system.mount(*words, ctypes.c_ulong(flags), data.encode()):
            self.skipTest(f"no mounts here: {os.strerror(ctypes.get_errno())}")
        self.addCleanup(system.umount2, str(target).encode(), 2)

    def need_native(self):
        """For tests that preload into programs of this machine, or that need ptrace or /proc of the guest."""
        if EMULATOR:
            self.skipTest("the programs of this machine cannot load a library of the emulated one")

    def need_no_sanitizer(self, why, kind=""):
        """For what cannot be so beside a sanitizer's runtime (of that kind): it has threads and libraries of its own."""
        if SANITIZE and kind in SANITIZE:
            self.skipTest(why)

    def assert_same_run(self, bare, preloaded):
        """The promise: but for its speed, a program cannot tell that cupool is there."""
        self.assertEqual(bare.out, preloaded.out)
        self.assertEqual(bare.err, preloaded.err)
        self.assertEqual(bare.code, preloaded.code)


def main():
    """Runs the methods named on the command line (all without one); exit code 77 when all of them were skipped."""
    module = sys.modules["__main__"]
    wanted = sys.argv[1:]
    suite = unittest.TestSuite()
    for case in vars(module).values():
        if isinstance(case, type) and issubclass(case, TestCase) and case is not TestCase:
            for name in unittest.TestLoader().getTestCaseNames(case):
                if not wanted or name in wanted:
                    suite.addTest(case(name))
    outcome = unittest.TextTestRunner(verbosity=2).run(suite)
    if not outcome.wasSuccessful() or outcome.testsRun == 0:
        sys.exit(1)
    sys.exit(SKIPPED if len(outcome.skipped) == outcome.testsRun else 0)
