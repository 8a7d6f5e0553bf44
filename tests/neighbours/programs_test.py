"""Unmodified programs under cupool that share a registry, on the simulated driver."""

import json
import os
import signal
import subprocess
import time

import harness

COMMAND = harness.BUILD / "cupool"
PROGRAM = harness.BUILD / "tests" / "report" / "script"
MIB = 1 << 20
PATIENCE = 60


class ProgramsTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.need_no_sanitizer("the runtime must come first in LD_PRELOAD")
        self.children = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for child in self.children:
            child.kill()
            child.wait()

    def start(self, *steps, **settings):
        """A program that does these steps and then sleeps."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CUPOOL_")}
        env.update({"LD_PRELOAD": str(harness.LIBRARY), "LD_LIBRARY_PATH": str(harness.BUILD / "sim"), "CUPOOL_STATS": "off",
                    "CUPOOL_NEIGHBOURS_DIR": str(self.scratch), "CUPOOL_SIM_HANG_MS": "0", "CUPOOL_DECAY_MS": "0", **settings})
        child = subprocess.Popen([PROGRAM, *steps, "n:600000"], env=env, stdout=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def cupool(self, *words):
        return harness.run([COMMAND, *words], env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, driver="sim")

    def shown(self):
        return {one["pid"]: one for one in json.loads(self.cupool("top", "--json").out)["processes"]}

    def until(self, is_so):
        """The processes in the registry once they are as wanted."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            shown = self.shown()
            if is_so(shown):
                return shown
        raise AssertionError(f"not within {PATIENCE} s: {shown}")

    def test_top_shows_what_programs_hold_and_keep(self):
        child = self.start(f"a:x:{30 * MIB}", f"a:y:{50 * MIB}", "f:x", "s")
        shown = self.until(lambda shown: child.pid in shown and shown[child.pid]["cached_bytes"] >= 30 * MIB)[child.pid]
        self.assertEqual(("script", 0), (shown["program"], shown["device"]))
        self.assertEqual(50 * MIB, shown["live_bytes"])
        self.assertEqual(shown["reserved_bytes"], shown["live_bytes"] + shown["cached_bytes"])
        self.assertEqual("GPU-" + "5c" * 4, shown["uuid"][:12])

    def test_trim_makes_a_sleeping_program_give_idle_memory_back(self):
        child, other = (self.start(f"a:x:{30 * MIB}", "f:x", "s") for _ in range(2))
        self.until(lambda shown: all(one.pid in shown and shown[one.pid]["cached_bytes"] >= 30 * MIB for one in (child, other)))
        done = self.cupool("trim", str(child.pid))
        self.assertEqual(0, done.code, done.out + done.err)
        self.assertIn("30 MiB given back", done.out)
        shown = self.shown()
        self.assertEqual(0, shown[child.pid]["cached_bytes"])
        self.assertLessEqual(30 * MIB, shown[other.pid]["cached_bytes"])
        self.assertEqual(0, self.cupool("trim", "all").code)
        self.assertEqual({0}, {one["cached_bytes"] for one in self.shown().values()})

    def test_what_a_program_freed_before_it_fell_silent_goes_back_by_itself(self):
        child = self.start(f"a:x:{30 * MIB}", "m:x:1", "f:x", CUPOOL_DECAY_MS="20")
        kept = self.start(f"a:x:{30 * MIB}", "m:x:1", "f:x")
        shown = self.until(lambda shown: {child.pid, kept.pid} <= shown.keys() and shown[child.pid]["reserved_bytes"] == 0)
        self.assertLessEqual(30 * MIB, shown[kept.pid]["cached_bytes"])

    def start_idle(self, *blocks):
        """A sleeping program that keeps blocks of 30 MiB, as the registry shows."""
        allocate = [f"a:{name}:{30 * MIB}" for name in blocks]
        child = self.start(*allocate, *(f"f:{name}" for name in blocks), "s")
        bytes_kept = 30 * MIB * len(blocks)
        self.until(lambda shown: child.pid in shown and shown[child.pid]["cached_bytes"] >= bytes_kept)
        return child

    def refuse(self, program, *words, faults):
        env = {"CUPOOL_NEIGHBOURS_DIR": str(self.scratch), "CUPOOL_SIM_FAULTS": faults}
        return harness.with_cupool([program, *words], env=env, driver="sim")

    def test_a_program_that_gets_no_context_asks_its_neighbours(self):
        child = self.start_idle("x")
        done = self.refuse(PROGRAM, "a:x:1000", faults="cuDevicePrimaryCtxRetain@1=2")
        self.assertEqual((0, ""), (done.code, done.out), done.err)
        self.assertEqual(0, self.shown()[child.pid]["cached_bytes"])

    def test_a_refused_call_that_names_no_device_asks_on_all_of_them(self):
        child = self.start_idle("x")
        self.refuse(harness.victim("room_table"), "cuLibraryLoadData", faults="cuLibraryLoadData@*=2")
        self.assertEqual(0, self.shown()[child.pid]["cached_bytes"])

    def test_programs_that_ask_at_once_get_what_all_of_them_need(self):
        child = self.start_idle("x", "y")
        # While it cannot answer, the requests gather.
        child.send_signal(signal.SIGSTOP)
        for _ in range(2):
            self.refuse(PROGRAM, f"a:x:{30 * MIB}", faults="cuMemAlloc_v2@*=2")
        child.send_signal(signal.SIGCONT)
        self.until(lambda shown: shown[child.pid]["cached_bytes"] == 0)

    def test_a_program_that_ends_leaves_the_registry(self):
        done = harness.with_cupool([PROGRAM, "a:x:1000"], env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, driver="sim")
        self.assertEqual(0, done.code)
        self.assertEqual({}, self.shown())

    def small_directory(self):
        """A directory in a file system of one page."""
        place = self.scratch / "small"
        place.mkdir()
        self.mount("none", place, "tmpfs", data="size=4k")
        return place

    def until_true(self, is_so):
        end = time.monotonic() + PATIENCE
        while not is_so():
            self.assertLess(time.monotonic(), end, "it never came to be")
            time.sleep(0.01)

    def test_a_program_enters_the_registry_once_there_is_room_for_its_first_page(self):
        place = self.small_directory()
        (place / "full").write_bytes(b"x" * 4096)
        self.start("a:x:1000", CUPOOL_NEIGHBOURS_DIR=str(place))
        registry = place / f"cupool-{os.geteuid()}-1"
        self.until_true(lambda: registry.exists() and registry.stat().st_size > 0)
        (place / "full").unlink()
        self.until_true(lambda: registry.read_bytes().startswith(b"cupool"))

    def test_a_program_publishes_its_figures_once_there_is_room_for_them(self):
        place = self.small_directory()
        self.start("a:x:1000", CUPOOL_NEIGHBOURS_DIR=str(place))
        registry = place / f"cupool-{os.geteuid()}-1"
        self.until_true(lambda: registry.exists() and registry.read_bytes().startswith(b"cupool"))
        time.sleep(1)  # it finds no room meanwhile
        self.assertNotIn(b"script", registry.read_bytes())
        remount = 1 << 5
        self.mount("none", place, "tmpfs", remount, "size=1m")
        self.until_true(lambda: b"script" in registry.read_bytes())

    def test_neighbours_no_makes_no_file(self):
        env = {"CUPOOL_NEIGHBOURS_DIR": str(self.scratch), "CUPOOL_NEIGHBOURS": "no"}
        self.assertEqual(0, harness.with_cupool([PROGRAM, "a:x:1000", "f:x"], env=env, driver="sim").code)
        self.assertEqual([], list(self.scratch.iterdir()))

    def test_a_program_without_device_memory_makes_no_registry(self):
        env = {"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}
        self.assertEqual(0, harness.with_cupool([PROGRAM, "s"], env=env, driver="sim").code)
        self.assertEqual([], list(self.scratch.iterdir()))


if __name__ == "__main__":
    harness.main()
