"""Real processes on one registry: what cupool top and cupool trim say of them, kills at random moments, a damaged registry."""

import json
import os
import random
import re
import shutil
import signal
import subprocess

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

    def start(self, *words, ready=True, **options):
        """A process in the registry of this test."""
        child = subprocess.Popen([NEIGHBOUR, self.scratch, *map(str, words)], stdout=subprocess.PIPE, text=True, **options)
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
                          "reused_share": 0.75, "waits_avoided": 4, "uuid": "GPU-5c010200-0000-0000-0000-000000000000"},
                         {name: value for name, value in shown[0].items() if name not in ("pid", "user")})
        table = self.cupool("top")
        self.assertEqual(0, table.code)
        lines = table.out.splitlines()
        self.assertEqual(3, len(lines), table.out)
        self.assertNotIn("\033", table.out)
        self.assertIn("75.0%", lines[1])
        self.assertRegex(lines[1], r" 5(\.0+)? MiB ")
        self.assertEqual(str(small.pid), lines[2].split()[0])

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
