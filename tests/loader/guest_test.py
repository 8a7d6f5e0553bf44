"""Threads of ours in a program's process disturb nothing of its life: its end, its sandbox, its descriptors, its children.

Each program runs bare and under cupool, and prints the same and ends the same way."""

import json
import os
import pathlib
import platform
import socket
import subprocess
import sys
import time

import harness

GUEST = harness.victim("guest")
WIDE = harness.victim("guest_wide")
COMMAND = harness.BUILD / "cupool"
PATIENCE = 60
# Runs a program under a filter that answers some system calls with ENOSYS: NUMBER... -- LIBRARY PROGRAM WORD...
FILTERED = [sys.executable, "-c", r"""
import ctypes, os, struct, sys
end = sys.argv.index("--")
step = struct.Struct("HBBI").pack
steps = [step(0x20, 0, 0, 0)]
for number in sys.argv[1:end]:
    steps += [step(0x15, 0, 1, int(number)), step(0x06, 0, 0, 0x00050000 | 38)]
text = ctypes.create_string_buffer(b"".join([*steps, step(0x06, 0, 0, 0x7fff0000)]))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HxxxxxxQ", len(steps) + 1, ctypes.addressof(text)), 0, 0) == 0
os.environ["LD_PRELOAD"] = sys.argv[end + 1]
os.execv(sys.argv[end + 2], sys.argv[end + 2:])
"""]
CLOSE_RANGE = "436"
CLONE_FS, CLONE_NEWNS, CLONE_NEWCGROUP = 0x200, 0x20000, 0x2000000
CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET = 0x4000000, 0x8000000, 0x40000000
UNSHARE = "272" if platform.machine() == "x86_64" else "97"


class GuestTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.need_no_sanitizer("its runtime has a thread, calls and descriptors of its own")
        self.settings = {"CUPOOL_NEIGHBOURS_DIR": str(self.scratch), "CUPOOL_DECAY_MS": "4"}

    def start(self, *words, program=GUEST, preload=True, under=(), is_shown=True, **settings):
        """A program that has said "ready", under cupool with its threads at work; `under`: started by this command."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CUPOOL_")}
        env.update({"LD_LIBRARY_PATH": str(harness.BUILD / "sim"), "CUPOOL_SIM_HANG_MS": "0"})
        if preload:
            env.update({**self.settings, **settings})
        command = [program, *words]
        if under:
            command = [*under, "--", harness.LIBRARY, *command]
        elif preload:
            env["LD_PRELOAD"] = str(harness.LIBRARY)
        # pylint: disable=consider-using-with
        child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)
        self.addCleanup(self.finish, child)
        self.assertEqual("ready\n", child.stdout.readline())
        if preload and is_shown:
            self.until(lambda: self.is_shown(child), child)
        return child

    @staticmethod
    def finish(child):
        child.kill()
        child.communicate()

    def until(self, is_so, child):
        """Waits for what must come as long as the program lives."""
        end = time.monotonic() + PATIENCE
        while not is_so():
            self.assertIsNone(child.poll(), "it has ended")
            self.assertLess(time.monotonic(), end)

    def top(self):
        done = harness.run([COMMAND, "top", "--json"], env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, driver="sim")
        return {one["pid"]: one for one in json.loads(done.out)["processes"]}

    def is_shown(self, child):
        return child.pid in self.top()

    @staticmethod
    def threads(child):
        """The names of its threads."""
        names = []
        for thread in os.listdir(f"/proc/{child.pid}/task"):
            try:
                with open(f"/proc/{child.pid}/task/{thread}/comm", encoding="utf-8") as comm:
                    names.append(comm.read().strip())
            except (FileNotFoundError, ProcessLookupError):
                pass
        return names

    @staticmethod
    def calls(child, name):
        """The system call that a thread of that name is in."""
        for thread in os.listdir(f"/proc/{child.pid}/task"):
            with open(f"/proc/{child.pid}/task/{thread}/comm", encoding="utf-8") as comm:
                if comm.read().strip() != name:
                    continue
            with open(f"/proc/{child.pid}/task/{thread}/syscall", encoding="utf-8") as call:
                return call.read()
        return ""

    @staticmethod
    def go_on(child, lines=1):
        child.stdin.write("\n" * lines)
        child.stdin.flush()

    def end(self, child):
        out, err = child.communicate(timeout=PATIENCE)
        return child.returncode, out, err

    def assert_as_bare(self, *words, lines=1, program=GUEST, **settings):
        """What it prints after "ready", and how it ends; the words that both have said."""
        bare = self.start(*words, program=program, preload=False)
        self.go_on(bare, lines)
        expected = self.end(bare)
        child = self.start(*words, program=program, CUPOOL_STATS="off", **settings)
        self.go_on(child, lines)
        self.assertEqual(expected, self.end(child))
        self.assertEqual(0, expected[0], expected)
        return expected[1]

    # ---- Ends.

    def test_a_program_whose_main_function_ends_first_ends_with_its_exit_handlers(self):
        for words, settings in ((["main-ends"], {}), (["main-ends-exported"], {}), (["main-ends-exported"], {"CUPOOL_SEGMENTS": "mapped"})):
            self.assertIn("exit handlers run", self.assert_as_bare(*words, **settings))

    def test_no_thread_of_ours_is_left_when_the_driver_ends(self):
        child = self.start("devices", CUPOOL_SIM_DEVICES="8", CUPOOL_DECAY_MS="0", CUPOOL_STATS="off")
        env = {**os.environ, "CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}
        with subprocess.Popen([COMMAND, "trim", "all"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as trim:
            # Between two tries to release something the thread that answers sleeps: 40 ms for each device.
            sleep = "35" if platform.machine() == "x86_64" else "101"
            self.until(lambda: trim.poll() is not None or self.calls(child, "cupool").startswith(f"{sleep} "), child)
            self.assertIsNone(trim.poll(), "it was too late to look")
            self.go_on(child)
            self.assertEqual((0, "threads beside the program's when the driver ends: 0\n"), self.end(child)[:2])

    def test_a_program_with_half_a_megabyte_of_thread_locals_has_our_threads(self):
        self.assertIn("ends well", self.assert_as_bare("plain", program=WIDE))

    # ---- Shuts itself in.

    def shut_in(self, *calls, **settings):
        # The file thread, which has just answered, sleeps for a second; a neighbour wakes it when the filter is there.
        child = self.start("filtered", *calls, CUPOOL_DECAY_MS="4000", **settings)
        self.go_on(child)
        self.assertEqual("shut in\n", child.stdout.readline())
        self.top()
        self.until(lambda: "cupool-files" not in self.threads(child), child)
        self.go_on(child)
        code, out, _ = self.end(child)
        self.assertEqual((0, "ends well\n"), (code, out), calls)

    def test_a_program_that_forbids_system_calls_is_not_killed_by_ours(self):
        for call in ("openat", "fcntl", "pread64", "pwrite64", "fstat", "futex", "membarrier", "rt_sigprocmask", "prctl", "nanosleep",
                     "readlinkat", "close"):
            self.shut_in(call)

    def test_a_second_filter_is_seen_as_well(self):
        text = open("/proc/self/status", encoding="utf-8").read()  # pylint: disable=consider-using-with
        if "Seccomp_filters" not in text:
            self.skipTest("this kernel does not count filters")
        # In a container, too, the threads work.
        child = self.start("filtered", "openat", under=FILTERED, CUPOOL_DECAY_MS="4000")
        self.go_on(child)
        self.assertEqual("shut in\n", child.stdout.readline())
        self.top()
        self.until(lambda: "cupool-files" not in self.threads(child), child)
        self.go_on(child)
        self.assertEqual((0, "ends well\n"), self.end(child)[:2])

    def test_an_exporter_that_forbids_system_calls_is_not_killed_by_an_importer(self):
        if "\nSeccomp:\t0\n" not in pathlib.Path("/proc/self/status").read_text(encoding="utf-8"):
            self.skipTest("a filter of this container hides the program's own (docs/system-calls.md)")
        for call in ("accept4", "fcntl", "getsockopt"):
            # Without the other threads nobody tells the one that lends.
            child = self.start("filtered-exported", call, is_shown=False, CUPOOL_SEGMENTS="mapped", CUPOOL_NEIGHBOURS="no",
                               CUPOOL_DECAY_MS="0")
            # (On a busy machine it runs, and has its name, later than the program is shut in and ends.)
            self.until(lambda c=child: "cupool-lends" in self.threads(c), child)
            self.go_on(child)
            self.assertEqual("shut in\n", child.stdout.readline())
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as importer:
                importer.connect(str(next(self.scratch.glob(f"cupool-{child.pid}-*"))))
                self.until(lambda c=child: "cupool-lends" not in self.threads(c), child)
            self.go_on(child)
            self.assertEqual((0, "ends well\n"), self.end(child)[:2])

    def jail(self, root, call):
        child = self.start("jailed", root, call, CUPOOL_DECAY_MS="4000")
        self.go_on(child)
        self.assertEqual("jailed\n", child.stdout.readline())
        self.top()
        # The file thread has found no registry there, and sleeps on a word of the process's own (FUTEX_WAIT_PRIVATE).
        self.until(lambda: self.calls(child, "cupool-files").split()[2:3] == ["0x80"], child)
        self.go_on(child)
        self.assertEqual("shut in\n", child.stdout.readline())
        self.until(lambda: "cupool-files" not in self.threads(child), child)
        self.go_on(child)
        self.assertEqual((0, "ends well\n"), self.end(child)[:2])

    def test_a_filter_after_a_change_of_root_is_seen(self):
        if os.geteuid() != 0:
            self.skipTest("only root can change its root")
        jail = self.scratch / "jail"
        jail.mkdir()
        for call in ("openat", "readlinkat"):
            self.jail(str(jail), call)

    def test_a_filter_after_a_limit_on_descriptors_is_seen(self):
        self.jail("", "openat")

    def test_no_thread_of_ours_begins_under_a_filter_of_the_programs(self):
        for call in ("futex", "openat", "close"):
            done = harness.with_cupool([GUEST, "filtered-early", call], env={**self.settings, "CUPOOL_SIM_REPORT": ""}, driver="sim")
            self.assertEqual((0, "ends well\n"), (done.code, done.out), done.err)
        self.assertEqual([], os.listdir(self.scratch))

    @staticmethod
    def capabilities(child):
        """What its threads are permitted."""
        found = set()
        for thread in os.listdir(f"/proc/{child.pid}/task"):
            with open(f"/proc/{child.pid}/task/{thread}/status", encoding="utf-8") as status:
                found |= {line.split()[1] for line in status if line.startswith(("CapPrm", "CapEff"))}
        return {int(text, 16) for text in found}

    def test_no_thread_of_ours_keeps_capabilities(self):
        child = self.start("capabilities")
        self.go_on(child)
        self.assertEqual("given up\n", child.stdout.readline())
        self.until(lambda: self.capabilities(child) == {0}, child)
        self.go_on(child)
        self.assertEqual((0, "ends well\n"), self.end(child)[:2])

    def test_a_program_that_becomes_another_user_takes_our_threads_along(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        self.assertIn("user 65534\nends well\n", self.assert_as_bare("user"))

    def test_a_program_with_one_thread_gets_a_user_namespace(self):
        child = self.start("namespace")
        self.go_on(child)
        answer = child.stdout.readline()
        # The threads are back. (There the user has no number, and so no registry.)
        self.until(lambda: {"guest", "cupool", "cupool-files"} == set(self.threads(child)), child)
        self.go_on(child)
        self.assertEqual((0, "ends well\n"), self.end(child)[:2])
        bare = self.start("namespace", preload=False)
        self.go_on(bare)
        self.assertEqual(bare.stdout.readline(), answer)

    def test_a_program_with_one_thread_leaves_none_of_ours_behind(self):
        if os.geteuid() != 0:
            self.skipTest("only root gets these namespaces")
        kinds = (CLONE_FS, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
        for kind in kinds:
            child = self.start("leaves", str(kind))
            self.go_on(child)
            self.assertEqual("left\n", child.stdout.readline())
            self.until(lambda c=child: {"guest", "cupool", "cupool-files"} == set(self.threads(c)), child)
            self.go_on(child)
            self.assertEqual((0, "threads elsewhere: 0\nends well\n"), self.end(child)[:2])

    def test_a_program_with_one_thread_enters_a_mount_namespace(self):
        if os.geteuid() != 0:
            self.skipTest("only root enters them")
        self.assertIn("entered", self.assert_as_bare("enters"))

    # ---- Descriptors.

    def test_no_thread_of_ours_takes_a_number_that_the_program_expects(self):
        metrics = self.scratch / "metrics.prom"
        self.assertIn("wrong numbers: 0", self.assert_as_bare("numbers", "100000", CUPOOL_METRICS_FILE=str(metrics)))
        self.assertIn("cupool_live_bytes", metrics.read_text())

    def test_a_program_that_closes_every_descriptor_stays_among_its_neighbours(self):
        child = self.start("closes", CUPOOL_DECAY_MS="0")
        done = harness.run([COMMAND, "trim", "all"], env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, driver="sim")
        self.assertIn("30 MiB given back", done.out)
        self.go_on(child)
        self.assertEqual((0, "ends well\n"), self.end(child)[:2])

    # ---- What a report, a trace and the counts write.

    def test_a_program_whose_trace_is_replaced_by_a_pipe_goes_on(self):
        for name, replace in (("pipe", os.mkfifo), ("folder", os.mkdir), ("link", lambda path: os.symlink(self.scratch / "victim", path))):
            trace = self.scratch / name / "t"
            trace.parent.mkdir()
            child = self.start("plain", CUPOOL_TRACE=str(trace), CUPOOL_STATS="off")
            trace.rename(trace.parent / "before")
            replace(trace)
            self.go_on(child)
            code, out, err = self.end(child)
            self.assertEqual((0, "ends well\n"), (code, out))
            self.assertEqual(1, err.count("ends here: the file was removed or replaced"), err)
        self.assertFalse((self.scratch / "victim").exists())

    def test_a_program_that_forbids_system_calls_is_not_killed_by_its_trace_or_metrics(self):
        for call in ("openat", "rt_sigprocmask", "fstat"):
            self.shut_in(call, CUPOOL_TRACE=str(self.scratch / "t"))
            self.shut_in(call, CUPOOL_METRICS_FILE=str(self.scratch / "m"))

    def test_daemons_spawned_children_and_signal_handlers_act_as_they_would(self):
        files = {"CUPOOL_TRACE": "%p.trace", "CUPOOL_COUNTS_FILE": "%p.counts", "CUPOOL_STATS_FILE": "%p.json"}
        wants = {"CUPOOL_STATS": "json", **{name: str(self.scratch / place) for name, place in files.items()}}
        for words in (["daemon"], ["daemon", "before"], ["spawns"], ["handlers"]):
            bare = harness.run([GUEST, *words], driver="sim")
            self.assertEqual(0, bare.code, bare.err)
            for settings in ({}, wants):
                if words == ["handlers"] and settings:
                    continue  # a report is written on signals, too
                done = harness.with_cupool([GUEST, *words], env={**self.settings, **settings}, driver="sim")
                self.assertEqual((0, bare.out), (done.code, done.out), done.err)
        # Of the process alone that used the device last, each time.
        self.assertEqual(3, len(list(self.scratch.glob("*.json"))))

    @staticmethod
    def held(child, name):
        """What a thread of that name has open."""
        found = []
        for thread in os.listdir(f"/proc/{child.pid}/task"):
            place = f"/proc/{child.pid}/task/{thread}"
            with open(f"{place}/comm", encoding="utf-8") as comm:
                if comm.read().strip() != name:
                    continue
            for number in os.listdir(f"{place}/fd"):
                try:
                    found.append(os.readlink(f"{place}/fd/{number}"))
                except FileNotFoundError:
                    pass
        return found

    def test_the_threads_hold_no_descriptor_of_the_programs(self):
        for under in ((), [*FILTERED, CLOSE_RANGE]):
            child = self.start("plain", under=under)
            held = self.held(child, "cupool-files")
            self.assertNotEqual([], held)
            self.assertEqual([], [one for one in held if one.startswith("pipe:")])
            self.go_on(child)
            self.assertEqual(0, self.end(child)[0])

    def test_threads_that_get_no_descriptors_of_their_own_open_nothing(self):
        child = self.start("plain", under=[*FILTERED, CLOSE_RANGE, UNSHARE], is_shown=False, CUPOOL_LOG="verbose", CUPOOL_STATS="off",
                           CUPOOL_METRICS_FILE=str(self.scratch / "metrics.prom"))
        while "no descriptors of its own" not in child.stderr.readline():
            self.assertIsNone(child.poll())
        self.assertEqual([], os.listdir(self.scratch))
        self.go_on(child)
        self.assertEqual((0, "ends well\n"), self.end(child)[:2])

    # ---- Children.

    def test_no_fork_child_has_a_descriptor_of_ours(self):
        for mode in ("driver", "mapped"):
            settings = {**self.settings, "CUPOOL_SEGMENTS": mode}
            done = harness.with_cupool([GUEST, "lend", "300"], env=settings, driver="sim")
            self.assertEqual(0, done.code, done.out + done.err)
            self.assertEqual({"children with a socket of the borrower's: 0", "children with a descriptor of the lender's: 0"},
                             set(done.out.splitlines()))


if __name__ == "__main__":
    harness.main()
