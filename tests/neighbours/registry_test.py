"""Real processes on one registry: what cupool top and cupool trim say of them, kills at random moments, a damaged registry."""

import fcntl
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import termios

import harness
import sanitizer

COMMAND = harness.BUILD / "cupool"
NEIGHBOUR = harness.BUILD / "tests" / "neighbours" / "neighbour"
MIB = 1 << 20
FIRST_SLOT = 12288


class RegistryTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.children = []
        self.addCleanup(self.end_all)
        self.registry = self.scratch / f"cupool-{os.geteuid()}-1"

    def end_all(self):
        for child in self.children:
            child.kill()
            child.wait()
            child.stdout.close()

    def start(self, *words, ready=True, program=NEIGHBOUR, **options):
        """A process in the registry of this test."""
        child = subprocess.Popen([program, self.scratch, *map(str, words)], stdout=subprocess.PIPE, text=True, **options)
        self.children.append(child)
        if ready:
            self.assertEqual("ready\n", child.stdout.readline())
        return child

    def kill(self, *children):
        for child in children:
            child.send_signal(signal.SIGKILL)
        for child in children:
            child.wait()

    def cupool(self, *words):
        return harness.run([COMMAND, *words], env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, driver="sim")

    def shown(self):
        """The processes that cupool top shows."""
        done = self.cupool("top", "--json")
        self.assertEqual(0, done.code, done.err)
        return json.loads(done.out)["processes"]

    def test_top_shows_every_process_with_the_largest_first(self):
        small, large = self.start(MIB), self.start(5 * MIB)
        shown = self.shown()
        self.assertEqual([large.pid, small.pid], [one["pid"] for one in shown])
        self.assertEqual({"program": "neighbour", "device": 0, "live_bytes": 1000, "cached_bytes": 5 * MIB,
                          "reserved_bytes": 5 * MIB + 1000, "peak_reserved_bytes": 2000, "reused": 3, "first_uses": 1,
                          "reused_share": 0.75, "waits_avoided": 4, "uuid": "GPU-5c010200-0000-0000-0000-000000000000",
                          "host_bytes": 500, "capacity_bytes": 80 << 30, "limit_bytes": None},
                         {name: value for name, value in shown[0].items() if name not in ("pid", "user")})
        table = self.cupool("top")
        self.assertEqual(0, table.code)
        self.assertNotIn("\033", table.out)
        _, titles, first, second, total, _, devices, device = table.out.splitlines()
        self.assertEqual("pid program dev live cached reserved peak host limit reused avoided".split(), titles.split())
        self.assertEqual([str(large.pid), "neighbour", "0", "1000", "5.0M", "5.0M", "2.0K", "500", "none", "75.0%", "4"], first.split())
        self.assertEqual(str(small.pid), second.split()[0])
        self.assertEqual("all 2 processes 2.0K 6.0M 6.0M 3.9K 1000 75.0% 8".split(), total.split())
        self.assertEqual("device capacity reserved of it idle by".split(), devices.split())
        self.assertEqual("GPU-5c010200-0000-0000-0000-000000000000 80.0G 6.0M 0.0% 6.0M 2 processes".split(), device.split())

    def test_top_sorts_by_what_it_is_told(self):
        small, large = self.start(MIB), self.start(5 * MIB)
        by_pid = sorted((large.pid, small.pid))
        for column, expected in (("reserved", [large.pid, small.pid]), ("cached", [large.pid, small.pid]), ("pid", by_pid)):
            done = self.cupool("top", "--json", "--sort", column)
            self.assertEqual(expected, [one["pid"] for one in json.loads(done.out)["processes"]], column)
            lines = self.cupool("top", "--once", f"--sort={column}").out.splitlines()
            self.assertEqual([str(pid) for pid in expected], [line.split()[0] for line in lines[2:4]], column)
        done = self.cupool("top", "--sort", "colour")
        self.assertEqual((2, "", 1), (done.code, done.out, done.err.count("\n")))
        self.assertIn("it sorts by reserved, live, cached, peak, waits, pid, user, name, device", done.err)

    def test_top_of_a_registry_that_nobody_is_in_says_so(self):
        self.kill(self.start(MIB))
        for words in (["top"], ["trim", "all"]):
            done = self.cupool(*words)
            self.assertEqual((0, ""), (done.code, done.err))
            self.assertRegex(done.out, r"^No process uses device memory under cupool now\b.*\.\n$")

    def terminal(self, *words, rows=24, columns=80):
        """The command on a terminal of that size: the process, and both ends' side of it that reads and types."""
        ours, its = os.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "CUPOOL_NEIGHBOURS_DIR": str(self.scratch), **sanitizer.options()}
        modes = termios.tcgetattr(its)
        watcher = subprocess.Popen([COMMAND, *words], stdin=its, stdout=its, env=environment)
        self.addCleanup(os.close, its)
        screen = os.fdopen(ours, "r+b", buffering=0)
        self.addCleanup(screen.close)
        self.addCleanup(watcher.wait)
        self.addCleanup(watcher.kill)
        return watcher, screen, its, modes

    def next_screen(self, screen, holds):
        """The lines of the next whole screen that holds such a text."""
        seen = b""
        while True:
            seen += screen.read(4096)
            for text in seen.split(b"\033[H\033[J")[:-1]:
                if holds.encode() in text:
                    return text.decode().replace("\r\n", "\n").splitlines()

    def test_top_on_a_terminal_obeys_keys_and_leaves_the_terminal_as_it_was(self):
        small, large = self.start(MIB), self.start(5 * MIB)
        watcher, screen, its, modes = self.terminal("top")
        lines = self.next_screen(screen, "sorted by reserved; ")
        self.assertIn("q quits", lines[0])
        self.assertEqual(str(large.pid), lines[3].split()[0])
        self.assertFalse(termios.tcgetattr(its)[3] & termios.ICANON)
        screen.write(b"?p")
        lines = self.next_screen(screen, "sorted by pid; ")
        self.assertEqual([str(pid) for pid in sorted((small.pid, large.pid))], [line.split()[0] for line in lines[3:5]])
        screen.write(b"q")
        self.assertEqual(0, watcher.wait())
        self.assertEqual(modes, termios.tcgetattr(its))

    def test_a_signal_that_ends_top_leaves_the_terminal_as_it_was(self):
        self.start(MIB)
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            watcher, screen, its, modes = self.terminal("top")
            self.next_screen(screen, "sorted by reserved; ")
            watcher.send_signal(one)
            self.assertEqual(-one, watcher.wait())
            self.assertEqual(modes, termios.tcgetattr(its))

    def test_top_fits_eighty_columns_and_the_height_of_the_terminal(self):
        name = self.scratch / ("a_program_with_a_very_long_name_" * 4)[:100]
        name.symlink_to(NEIGHBOUR)
        children = [self.start(2 ** 47 - 1, program=name) for _ in range(20)]
        others = [self.start(1, user=12345, group=12345)] if os.geteuid() == 0 and not os.chmod(self.scratch, 0o777) else []
        for columns, rows in ((80, 100), (80, 24), (100, 100)):
            watcher, screen, _, _ = self.terminal("top", rows=rows, columns=columns)
            lines = self.next_screen(screen, "sorted by reserved; ")
            self.assertLess(len(lines), rows)
            for line in lines:
                self.assertLessEqual(len(line), columns, line)
            if rows == 24:
                self.assertRegex(lines[-1], r"^\d+ more lines: cupool top --once shows all$")
            else:
                self.assertEqual(len(children) + len(others) + 7, len(lines), lines)
            screen.write(b"q")
            watcher.wait()

    def test_top_on_a_terminal_goes_on_showing_who_comes(self):
        first = self.start(MIB)
        ours, its = os.openpty()
        environment = {**os.environ, "CUPOOL_NEIGHBOURS_DIR": str(self.scratch), **sanitizer.options()}
        watcher = subprocess.Popen([COMMAND, "top"], stdin=its, stdout=its, env=environment)
        os.close(its)
        screen = os.fdopen(ours, "rb", buffering=0)
        self.addCleanup(screen.close)
        self.addCleanup(watcher.wait)
        self.addCleanup(watcher.kill)

        def next_screen_with(process):
            seen = b""
            while str(process.pid).encode() + b" " not in seen.rpartition(b"\033[H\033[J")[2]:
                seen += screen.read(4096)

        next_screen_with(first)
        next_screen_with(self.start(2 * MIB))
        watcher.send_signal(signal.SIGINT)
        self.assertEqual(-signal.SIGINT, watcher.wait())

    def test_top_without_a_registry_says_what_to_do(self):
        for words, code, out in ((["top"], 1, ""), (["top", "--json"], 0, '{"processes":[]}\n'), (["trim", "all"], 1, "")):
            done = self.cupool(*words)
            self.assertEqual((code, out), (done.code, done.out))
            self.assertEqual(1, done.err.count("\n"))
            self.assertIn("CUPOOL_NEIGHBOURS", done.err)
        self.assertTrue(self.cupool("top", "--openmetrics").out.endswith("# EOF\n"))
        self.assertEqual([], list(self.scratch.iterdir()))

    def test_trim_says_what_each_process_gave_back(self):
        first, second = self.start(3 * MIB), self.start(7 * MIB)
        done = self.cupool("trim", str(first.pid))
        self.assertEqual((0, ""), (done.code, done.err))
        self.assertRegex(done.out, rf"^neighbour\[{first.pid}\], device 0: 3(\.0+)? MiB given back, 0 .*still idle\n$")
        self.assertEqual({first.pid: 0, second.pid: 7 * MIB}, {one["pid"]: one["cached_bytes"] for one in self.shown()})
        done = self.cupool("trim", "all")
        self.assertEqual(2, done.out.count("given back"), done.out)
        self.assertEqual([0, 0], [one["cached_bytes"] for one in self.shown()])

    def test_trim_refuses_what_is_no_process_in_the_registry(self):
        child = self.start(1)
        for words, code in (([], 2), (["x"], 2), (["0"], 2), (["-1"], 2), ([str(child.pid), "2"], 2), ([str(os.getpid())], 1)):
            done = self.cupool("trim", *words)
            self.assertEqual(code, done.code, (words, done.err))
            self.assertEqual(1, done.err.count("\n"), done.err)

    def test_trim_does_not_wait_for_a_process_that_is_stopped(self):
        child = self.start(MIB)
        child.send_signal(signal.SIGSTOP)
        done = self.cupool("trim", "all")
        self.assertEqual(1, done.code)
        self.assertIn("no answer within a second", done.out)

    def test_processes_killed_at_random_moments_leave_no_entry(self):
        for seed in range(sanitizer.fewer(4)):
            chance = random.Random(seed)
            children = [self.start("churn" if chance.random() < 0.3 else chance.randrange(MIB), ready=False) for _ in range(100)]
            doomed = chance.sample(children, 70)
            while doomed:
                some = [doomed.pop() for _ in range(min(len(doomed), chance.randrange(1, 20)))]
                self.kill(*some)
                alive = {child.pid for child in children if child.poll() is None}
                self.assertLessEqual({one["pid"] for one in self.shown()}, alive)
            self.kill(*[child for child in children if child.poll() is None])
            self.assertEqual([], self.shown())

    def test_a_hundred_processes_are_all_shown(self):
        children = {self.start(MIB).pid for _ in range(100)}
        self.assertEqual(children, {one["pid"] for one in self.shown()})

    def test_a_registry_of_noise_shows_nothing_and_stops_nobody(self):
        for seed in range(sanitizer.fewer(30)):
            noise = random.Random(seed).randbytes(self.start(MIB) and self.registry.stat().st_size)
            with self.registry.open("r+b") as registry:
                # In two of three worlds the mark at the beginning stays, so that the rest is read.
                registry.seek(0 if seed % 3 == 0 else 12)
                registry.write(noise[registry.tell():])
            done = self.cupool("top", "--json")
            self.assertEqual(0, done.code)
            self.assertLessEqual(len(json.loads(done.out)["processes"]), 1)
            self.assertIn(self.cupool("trim", "all").code, (0, 1))
            self.assertIsNone(self.children[-1].poll())
            self.kill(*self.children)
            self.registry.unlink()

    def test_a_registry_that_is_truncated_kills_nobody(self):
        waiting = [self.start(MIB, "lost") for _ in range(5)]
        with self.registry.open("r+b") as registry:
            registry.truncate(0)
        for child in waiting:
            self.assertEqual(0, child.wait(timeout=60))

    def test_what_stands_in_the_place_of_the_registry_is_left_alone(self):
        victim = self.scratch / "victim"
        victim.write_text("precious")
        for put in (lambda: self.registry.symlink_to(victim), lambda: os.link(victim, self.registry), lambda: os.mkfifo(self.registry, 0o600)):
            put()
            child = self.start(MIB, ready=False)
            self.assertEqual(2, child.wait(timeout=60))
            self.assertEqual(1, self.cupool("top").code)
            self.registry.unlink()
        self.registry.mkdir()
        self.assertEqual(2, self.start(MIB, ready=False).wait(timeout=60))
        self.assertEqual("precious", victim.read_text())

    def test_a_registry_that_belongs_to_another_user_is_not_used(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make one")
        self.kill(self.start(MIB))
        os.chown(self.registry, 12345, 0)
        child = self.start(MIB, ready=False)
        self.assertEqual(2, child.wait(timeout=60))
        self.assertIn("belongs to another user", child.stdout.read())

    def test_root_sees_the_registries_of_all_users(self):
        if os.geteuid() != 0:
            self.skipTest("only root can")
        os.chmod(self.scratch, 0o777)
        child = self.start(1, user=12345, group=12345)
        own = self.start(2)
        self.assertEqual({child.pid: "12345", own.pid: "root"}, {one["pid"]: one["user"] for one in self.shown()})
        samples = re.findall(r'^cupool_live_bytes\{pid="(\d+)",user="(\w+)",', self.cupool("top", "--openmetrics").out, re.MULTILINE)
        self.assertEqual({(str(child.pid), "12345"), (str(own.pid), "root")}, set(samples))

    def start_as(self, user):
        """A process of another user, and that user's registry."""
        if os.geteuid() != 0:
            self.skipTest("only root can")
        os.chmod(self.scratch, 0o777)
        return self.start(1, user=user, group=user), self.scratch / f"cupool-{user}-1"

    def test_a_user_who_spells_a_name_in_many_ways_is_shown_once(self):
        child, registry = self.start_as(12345)
        for zeros in range(1, 41):
            other = self.scratch / f"cupool-{'0' * zeros}12345-1"
            shutil.copy(registry, other)
            os.chown(other, 12345, 12345)
        self.assertEqual([child.pid], [one["pid"] for one in self.shown()])

    def test_root_is_not_shown_a_process_of_its_own_under_the_name_of_another_user(self):
        own = self.start(1)
        forged = self.scratch / "cupool-12345-1"
        if os.geteuid() != 0:
            self.skipTest("only root can")
        shutil.copy(self.registry, forged)
        os.chown(forged, 12345, 12345)
        self.assertEqual([(own.pid, "root")], [(one["pid"], one["user"]) for one in self.shown()])
        self.assertEqual(1, self.cupool("trim", str(own.pid)).out.count("given back"))

    def test_trim_takes_the_answer_of_a_process_from_nobody_else(self):
        child, registry = self.start_as(12345)
        other = self.start(5 * MIB, user=12346, group=12346)
        other.send_signal(signal.SIGSTOP)
        # Of a process with more memory, under the random number of the first: checksum, stamp, number, ...
        with open(registry, "rb") as file, open(self.scratch / "cupool-12346-1", "r+b") as forged:
            body = bytearray(forged.read()[FIRST_SLOT + 8:FIRST_SLOT + 256])
            body[8:16] = file.read()[FIRST_SLOT + 16:FIRST_SLOT + 24]
            total = 0xcbf29ce484222325 ^ FIRST_SLOT
            for byte in body:
                total = (total ^ byte) * 0x100000001b3 % 2**64
            forged.seek(FIRST_SLOT)
            forged.write(total.to_bytes(8, "little") + body)
        out = self.cupool("trim", "all").out
        self.assertRegex(out, rf"neighbour\[{other.pid}\], device 0: no answer")
        self.assertRegex(out, rf"neighbour\[{child.pid}\], device 0: 1 B given back")

    def test_a_thousand_registries_of_nobody_hide_no_living_process(self):
        child, registry = self.start_as(60000)
        for user in range(10000, 11000):
            other = self.scratch / f"cupool-{user}-1"
            other.touch(mode=0o600)
            os.truncate(other, registry.stat().st_size)
            os.chown(other, user, user)
        done = self.cupool("top", "--json")
        self.assertEqual([child.pid], [one["pid"] for one in json.loads(done.out)["processes"]])
        self.assertIn("745 registries", done.err)
        self.assertEqual(1, done.err.count("\n"))

    def test_root_does_not_touch_what_a_user_mounted_over_a_registry(self):
        child, registry = self.start_as(12345)
        self.assertEqual([child.pid], [one["pid"] for one in self.shown()])
        bind = 1 << 12
        self.mount(registry, registry, "none", bind)
        self.assertEqual([], self.shown())

    def test_an_entry_that_comes_twice_is_one_sample(self):
        self.start(1, "twice")
        samples = [line for line in self.cupool("top", "--openmetrics").out.splitlines() if line.startswith("cupool_live_bytes")]
        self.assertEqual(1, len(samples), samples)

    def test_metrics_that_could_not_be_written_are_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        self.start(1)
        for words in ("--openmetrics", "--json", "--once"):
            done = harness.run(["sh", "-c", f"{COMMAND} top {words} > /dev/full"],
                               env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, driver="sim")
            self.assertEqual((1, True), (done.code, "No space left" in done.err), (words, done.err))

    def test_programs_of_other_tests_do_not_meet_in_the_registry(self):
        self.assertIn("CUPOOL_NEIGHBOURS=no\n", harness.run(["env"], driver="sim").out)
        alone = harness.run(["env"], env=self.own_registry(), driver="sim").out
        self.assertNotIn("CUPOOL_NEIGHBOURS=", alone)
        on_a_gpu = [harness.run(["env"], driver="gpu").out for _ in range(2)]
        places = {re.search(r"^CUPOOL_NEIGHBOURS_DIR=(.+)$", out, re.MULTILINE).group(1) for out in on_a_gpu}
        self.assertEqual(2, len(places))


if __name__ == "__main__":
    harness.main()
