"""Traces (CUPOOL_TRACE) of programs on the simulated driver, read back by the command."""

import collections
import gzip
import os
import random
import re
import signal
import subprocess
import time

import harness
import lab
import trace_blocks

COMMAND = harness.BUILD / "cupool"
CENSUS = harness.BUILD / "tests" / "report" / "census"
OBSERVED = harness.BUILD / "tests" / "aids" / "observed"
# Kinds of blocks.
EVENTS, LIVE_SET = 2, 3


class TraceTest(harness.TestCase):
    def play(self, *steps, path=None, program=lab.PROGRAM, **env):
        """Runs the steps with a trace."""
        path = path or self.scratch / "t"
        return harness.with_cupool([program, *steps], env={"CUPOOL_TRACE": str(path), **env}, driver="sim")

    def read(self, path=None, *flags, code=0):
        """What the command says of a trace."""
        done = harness.run([COMMAND, "trace", *flags, path or self.scratch / "t"], driver="sim")
        self.assertEqual(code, done.code, done.err)
        return done

    def dump(self, path=None):
        """Every event as (name, fields)."""
        found = []
        for line in self.read(path, "--dump").out.splitlines():
            _, _, name, *fields = line.split(" ", 3)
            found.append((name, dict(re.findall(r"(\w+)=(\"[^\"]*\"|[^=]*?)(?= \w+=|$)", fields[0] if fields else ""))))
        return found

    def names(self, path=None):
        return [name for name, _ in self.dump(path)]

    def test_a_trace_tells_what_the_program_did_in_its_order(self):
        self.assertEqual((0, ""), self.said("a:x:1000", "a:y:5000000", "m:x:1", "s", "f:x", "w", "a:z:1000"))
        events = [(name, fields) for name, fields in self.dump() if name in ("allocated", "freed", "failed", "waited")]
        self.assertEqual(["allocated", "allocated", "freed", "failed", "allocated"], [n for n, _ in events if n != "waited"])
        first, again = events[0][1], events[-1][1]
        self.assertEqual(("1000", "pool", "miss", "cuMemAlloc_v2", "0"), tuple(first[k] for k in ("asked", "kind", "sort", "call", "device")))
        self.assertEqual(first["address"], again["address"])
        self.assertEqual("kept", again["sort"])
        self.assertIn(("waited", "cuCtxSynchronize"), [(n, f.get("call")) for n, f in events])

    def test_a_free_of_nothing_is_no_free_in_a_trace(self):
        for settings in ({}, {"CUPOOL_SPLIT": "no"}, {"CUPOOL_BACKEND": "native"}):
            # Nothing is called "none": its address is 0.
            self.assertEqual(0, self.play("a:x:1000", "f:none", "F:none", "f:x", "f:none", **settings).code)
            self.assertEqual(1, self.names().count("freed"), settings)

    def said(self, *steps, **env):
        done = self.play(*steps, **env)
        return done.code, done.err

    def test_the_live_memory_of_a_trace_is_what_the_counters_say(self):
        for seed in range(3):
            rng = random.Random(seed)
            steps, held = [], []
            for i in range(6000):
                if held and rng.random() < 0.45:
                    steps.append(rng.choice(["f", "f", "F"]) + ":" + held.pop(rng.randrange(len(held))))
                else:
                    held.append(f"b{i}")
                    steps.append(f"{rng.choice('aaaag')}:b{i}:{rng.choice([300, 5000, 70000, 900000]) + rng.randrange(200)}")
                if rng.random() < 0.02:
                    steps.append("s")
            settings = [{}, {"CUPOOL_SEGMENTS": "mapped"}, {"CUPOOL_SPLIT": "no"}][seed]
            self.assertEqual(0, self.play(*steps, **settings).code)
            said = self.read().out
            agreed = re.search(r"the counters agree at (\d+) of (\d+) moments", said)
            self.assertIsNotNone(agreed, said)
            self.assertEqual(agreed[1], agreed[2])
            self.assertGreaterEqual(int(agreed[2]), 2)

    def test_a_trace_holds_memory_of_every_kind(self):
        self.assertEqual(0, self.play(program=CENSUS).code)
        events = self.dump()
        self.play(program=OBSERVED, path=self.scratch / "o")
        events += self.dump(self.scratch / "o")
        kinds = {fields["kind"] for name, fields in events if name == "allocated"}
        self.assertLessEqual({"pool", "managed", "stream", "physical", "array", "pinned"}, kinds)
        gone = {fields["kind"] for name, fields in events if name == "freed"}
        self.assertLessEqual({"pool", "physical", "pinned"}, gone)
        self.assertIn("segment", {name for name, _ in events})
        self.assertIn("driver", {name for name, _ in events})

    def test_a_trace_is_whole_however_the_program_ends(self):
        lab.needs_signals(self)
        for how in ("exit", "_exit", "quick", "abort", "term", "int", "hup"):
            self.play("a:x:1000", "a:y:1000", "f:x", f"x:{how}")
            names = self.names()
            self.assertEqual(["allocated", "allocated", "freed"], [n for n in names if n in ("allocated", "freed")], how)
            self.assertEqual("ended", names[-1], how)

    def test_a_trace_of_a_killed_program_can_be_read(self):
        """KILLS=200 kills so often, and says how old the oldest was of what a trace lacks."""
        lab.needs_signals(self)
        rng = random.Random(8)
        read, missing = 0, []
        for turn in range(int(os.environ.get("KILLS", "12"))):
            path, done = self.scratch / "killed", self.scratch / "done"
            for old in (path, done):
                old.unlink(missing_ok=True)
            env = {**os.environ, "LD_PRELOAD": harness.preloaded(harness.LIBRARY), "LD_LIBRARY_PATH": str(harness.BUILD / "sim"),
                   "CUPOOL_TRACE": str(path), "CUPOOL_NEIGHBOURS": "no", "CUPOOL_STATS": "off"}
            env.pop("CUPOOL_SIM_REPORT", None)
            with subprocess.Popen([harness.BUILD / "tests/report/until_killed", done, ("0", "20", "1000")[turn % 3]], env=env) as program:
                # A pause only lets the program come to a moment of its own.
                time.sleep(0.05 + rng.random() / 3)
                killed = time.monotonic_ns()
                program.send_signal(signal.SIGKILL)
            if not path.exists() or path.stat().st_size == 0:
                continue
            read += 1
            said = self.read(path).out
            self.assertIn("events in", said)
            self.assertRegex(said, "the trace has no end: |the last block is incomplete: ")
            told = collections.Counter()
            for line in self.read(path, "--dump").out.splitlines():
                words = line.split(maxsplit=3)
                told[int(words[1])] += words[2] == "freed"
            for thread, pairs, over in self.pairs_done(done):
                # (The last one may be under way.)
                self.assertLessEqual(told[thread], pairs + 1)
                if told[thread] < pairs:
                    self.assertGreater(told[thread] + len(over), pairs)
                    missing.append(killed - over[told[thread] % len(over)])
        self.assertGreater(read, 0)
        if "KILLS" in os.environ:
            print(f"{read} traces of killed programs read; the oldest that one lacks was {max(missing) / 1e6:.1f} ms old "
                  f"({sorted(missing)[len(missing) // 2] / 1e6:.1f} ms in the middle of {len(missing)} threads)")

    @staticmethod
    def pairs_done(path):
        """What each thread of until_killed did: its number, how many pairs, and when the last of them were over."""
        words = memoryview(path.read_bytes()).cast("Q") if path.exists() else []
        each = (1 << 20) + 2
        return [(words[at], words[at + 1], words[at + 2:at + each]) for at in range(0, len(words), each)]

    def test_a_trace_without_an_end_says_that_more_may_have_happened(self):
        # What happens in the moment before is not written yet.
        self.play("a:x:1000", "m:x:1", "s", "x:kill")
        for verb in ("trace", "waits"):
            self.assertIn("the trace has no end", harness.run([COMMAND, verb, self.scratch / "t"], driver="sim").out)
        self.play("a:x:1000", "m:x:1", "s")
        for verb in ("trace", "waits"):
            self.assertNotIn("no end", harness.run([COMMAND, verb, self.scratch / "t"], driver="sim").out)

    def test_a_trace_that_cannot_be_written_ends_in_a_line_and_the_program_goes_on(self):
        steps = "a:x:1000 t:1:512:200000 f:x p:frees"
        plain = self.play(*steps.split())
        limited = self.play("a:w:1000", "u:65536", *steps.split(), path=self.scratch / "l")
        self.assertEqual((plain.code, plain.out), (limited.code, limited.out))
        self.assertEqual(1, limited.err.count("the limit on the size of files is reached"), limited.err)
        self.assertIn("events in", self.read(self.scratch / "l").out)
        nowhere = self.play(*steps.split(), path=self.scratch / "none" / "t")
        self.assertEqual((plain.code, plain.out), (nowhere.code, nowhere.out))
        self.assertEqual(1, nowhere.err.count("cannot write the trace"), nowhere.err)

    def test_a_full_disk_ends_the_trace_in_a_line(self):
        full = self.scratch / "full"
        full.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", full], capture_output=True, check=False).returncode != 0:
            self.skipTest("no file system can be mounted here")
        try:
            done = self.play("a:x:1000", "t:1:512:200000", "f:x", path=full / "t")
            self.assertEqual(0, done.code)
            self.assertEqual(1, done.err.count("no space is left on the device"), done.err)
            self.assertIn("events in", self.read(full / "t").out)
        finally:
            subprocess.run(["umount", full], check=False)

    def test_a_disk_that_fails_ends_the_trace_in_a_line(self):
        failing = harness.compile_shared(self.scratch, "failing.so", """
            #define _GNU_SOURCE
            #include <errno.h>
            #include <stddef.h>
            #include <sys/syscall.h>
            #include <unistd.h>
            static long written;
            ssize_t write(int file, const void *data, size_t bytes) {
              if (bytes > 4096 && (written += bytes) > 100000) { errno = EIO; return -1; }
              return syscall(SYS_write, file, data, bytes);
            }""")
        steps = "a:x:1000 t:1:512:200000 f:x p:frees".split()
        plain = self.play(*steps)
        done = harness.with_cupool([lab.PROGRAM, *steps], env={"CUPOOL_TRACE": str(self.scratch / "e")}, more=[failing], driver="sim")
        self.assertEqual((plain.code, plain.out), (done.code, done.out))
        self.assertEqual(1, done.err.count("the device reports an error"), done.err)
        self.assertIn("events in", self.read(self.scratch / "e").out)

    def test_an_event_of_a_real_program_takes_at_most_sixteen_bytes_and_the_counters_agree_at_every_thousandth(self):
        steps = []
        with gzip.open(harness.SOURCE / "tests" / "data" / "gpt.trace.gz", "rt") as lines:
            for kind, *words in map(str.split, lines):
                steps += [f"a:{words[0]}:{words[1]}"] if kind == "a" else [f"f:{words[0]}"] if kind == "f" else ["s"] if kind == "s" else []
        self.assertEqual(0, self.play(*steps).code)
        said = self.read().out
        self.assertLessEqual(int(re.search(r"events in .* (\d+) bytes each", said)[1]), 16)
        agreed, moments = map(int, re.search(r"the counters agree at (\d+) of (\d+) moments", said).groups())
        self.assertEqual((moments, True), (agreed, moments >= 3))

    def test_a_fork_child_leaves_the_trace_of_its_parent_alone(self):
        self.assertEqual((0, ""), self.said("a:x:1000", "k", "a:y:1000", "f:x"))
        self.assertEqual(1, self.names().count("ended"))
        self.assertEqual(2, self.names().count("allocated"))
        self.assertEqual(["t"], [path.name for path in self.scratch.iterdir()])

    def test_a_trace_is_named_by_a_pattern_and_replaces_no_link(self):
        self.play("a:x:1000", path=self.scratch / "%e-%p.trace")
        self.assertRegex(next(self.scratch.iterdir()).name, r"^script-[0-9]+\.trace$")
        target = self.scratch / "target"
        target.write_text("mine")
        (self.scratch / "link").symlink_to(target)
        done = self.play("a:x:1000", path=self.scratch / "link")
        self.assertIn("it is a symbolic link", done.err)
        self.assertEqual("mine", target.read_text())

    def test_a_trace_and_counts_are_their_owners_whatever_the_umask(self):
        places = {"CUPOOL_TRACE": self.scratch / "t", "CUPOOL_COUNTS_FILE": self.scratch / "c"}
        env = {**{name: str(place) for name, place in places.items()}, "CUPOOL_SIM_REPORT": ""}
        done = harness.with_cupool(["sh", "-c", 'umask 777; exec "$0" a:x:1000 f:x', lab.PROGRAM], env=env, driver="sim")
        self.assertEqual((0, ""), (done.code, done.err))
        self.assertEqual([0o600, 0o400], [place.stat().st_mode & 0o777 for place in places.values()])

    def test_a_trace_cannot_move_the_cursor(self):
        self.play("a:x:1000", "f:x")
        path = self.scratch / "t"
        whole = bytearray(path.read_bytes())
        end = 48 + int.from_bytes(whole[8:12], "little")
        self.assertIn(b"\x04miss", whole[:end])
        whole[:end] = whole[:end].replace(b"\x04miss", b"\x04\x1b[2J")
        sum_ = 0xFFFFFFFF
        whole[4:8] = bytes(4)
        for byte in whole[:end]:
            sum_ ^= byte
            for _ in range(8):
                sum_ = sum_ >> 1 ^ (0x82F63B78 if sum_ & 1 else 0)
        whole[4:8] = (sum_ ^ 0xFFFFFFFF).to_bytes(4, "little")
        path.write_bytes(whole)
        text = self.read(path, "--dump").out
        self.assertIn("[2J", text)
        self.assertNotIn("\x1b", text)

    def test_the_memory_of_a_context_ends_with_it_in_a_trace(self):
        self.assertEqual(0, self.play("C", "a:x:1000", "g:m:1000", "D").code)
        said = self.read().out
        self.assertRegex(said, r"device 0, pool: 0 B in 0 blocks at the end")
        self.assertIn("1 context_ended", said)

    def test_phases_and_the_growth_of_the_pool_are_in_a_trace(self):
        self.assertEqual(0, self.play("a:x:1000", "f:x", "s", "T:0").code)
        segments = [fields for name, fields in self.dump() if name == "segment"]
        self.assertEqual([("taken", "demand"), ("given back", "trim")], [(f["what"], f["why"]) for f in segments])

    def test_a_trace_that_is_kept_is_written_on_a_signal(self):
        lab.needs_signals(self)
        self.assertEqual(0, self.play("a:x:1000", "t:1:512:50000", "x:usr2", "a:y:2000", CUPOOL_TRACE_KEEP="1M",
                                      CUPOOL_STATS_SIGNAL="usr2").code)
        names = self.dump()
        self.assertLess((self.scratch / "t").stat().st_size, 1 << 21)
        self.assertNotIn("2000", [fields.get("asked") for name, fields in names if name == "allocated"])
        self.assertRegex(self.read().out, r"device 0, pool: 1 KiB in 1 block at the end")

    def test_a_trace_that_is_kept_is_written_when_memory_runs_out(self):
        self.play("a:x:1000", f"a:y:{1 << 45}", f"a:z:{30 << 30}", *[f"a:z{i}:{3 << 30}" for i in range(40)], CUPOOL_TRACE_KEEP="1M",
                  CUPOOL_OOM_REPORTS="0")
        self.assertIn("out_of_memory", self.names())

    def test_a_trace_says_who_held_memory_at_the_peak_and_at_the_end(self):
        self.assertEqual(0, self.play("a:x:8000000", "g:m:4000000", "f:x", "a:y:1000").code)
        peak, end = self.read().out.split("Who held memory at the peak")[1].split("Who held memory at the end")
        self.assertRegex(peak, r"MiB in 1 block, pool\n +cuMemAlloc_v2\n")
        self.assertLess(peak.index("pool"), peak.index("managed"))
        self.assertRegex(end, r"3.8 MiB in 1 block, managed\n +cuMemAllocManaged\n +1 KiB in 1 block, pool\n")
        begin = self.read(None, "--at", "begin").out
        self.assertIn("0 B of device memory", begin)
        self.assertEqual("", self.read(None, "--at", "0").err)
        late = self.read(None, "--at", "700", code=1)
        self.assertEqual("", late.out)
        self.assertRegex(late.err, r"ends \d\.\d+ s after its beginning, so it does not tell of a moment 700\.000000 s after it")
        self.assertIn("is no moment", harness.run([COMMAND, "trace", "--at", "noon", self.scratch / "t"], driver="sim").err)

    def blocks(self, path):
        """(offset, kind, flags, time) of each block."""
        data, at = path.read_bytes(), 0
        while at < len(data):
            head = trace_blocks.HEAD.unpack_from(data, at)
            yield at, head[3], head[4], head[6]
            at += trace_blocks.HEAD.size + head[2]

    def test_a_moment_late_in_a_trace_is_found_without_all_that_came_before(self):
        lab.needs_signals(self)
        rng = random.Random(4)
        steps, held = [], []
        for i in range(12000):
            if held and rng.random() < 0.48:
                steps.append("f:" + held.pop(rng.randrange(len(held))))
            else:
                held.append(f"b{i}")
                steps.append(f"{rng.choice('aaag')}:b{i}:{rng.choice([300, 5000, 70000, 900000]) + rng.randrange(200)}")
            if i % 40 == 0:
                steps.append("t:2:512:200")
        # A trace that is kept has a live set for each quarter of it.
        path = self.scratch / "t"
        self.assertEqual(0, self.play(*steps, "x:usr2", CUPOOL_TRACE_KEEP="1M", CUPOOL_STATS_SIGNAL="usr2", CUPOOL_STACKS="8").code)
        live_sets = [(at, time) for at, kind, flags, time in self.blocks(path) if kind == LIVE_SET and flags & 1]
        self.assertGreaterEqual(len(live_sets), 3)
        packed = self.scratch / "packed"
        done = harness.run([COMMAND, "trace", "--compress", "-o", packed, path], driver="sim")
        if "not installed" in done.err:
            self.skipTest("there is no libzstd")
        # A packed one is read from its beginning.
        end = float(re.search(r"events in ([\d.]+) s", self.read().out)[1])
        moments = ["begin", "end", *(f"{end * part / 16:.6f}" for part in range(1, 17))]
        for moment in moments:
            self.assertEqual(self.read(packed, "--at", moment).out, self.read(path, "--at", moment).out, moment)
        # What is not read cannot be seen to be damaged.
        data = bytearray(path.read_bytes())
        first = next(at for at, kind, *_ in self.blocks(path) if kind == EVENTS and at > live_sets[0][0])
        data[first + trace_blocks.HEAD.size] ^= 0xFF
        said = self.read(path, "--at", "end").out
        path.write_bytes(data)
        self.read(path, code=1)
        self.assertEqual(said, self.read(path, "--at", "end").out)

    def test_what_grew_between_two_moments_and_two_traces_is_told_by_kind(self):
        self.play("a:x:1000000", "a:y:1000000", "f:x")
        self.play("a:x:1000000", "a:y:1000000", "g:z:4000000", path=self.scratch / "u")
        done = harness.run([COMMAND, "diff", self.scratch / "t", self.scratch / "u"], driver="sim")
        self.assertEqual(0, done.code, done.err)
        self.assertRegex(done.out, r"managed: \+3.8 MiB, \+1 block\n  pool: \+[0-9.]+ KiB, \+1 block\n")
        self.assertRegex(done.out, rf"^{self.scratch}/t, at the end: .*\n{self.scratch}/u, at the end: ")
        self.assertLess(done.out.index("What grew"), done.out.index("cuMemAllocManaged"))
        back = harness.run([COMMAND, "diff", "--from", "peak", self.scratch / "t"], driver="sim").out
        self.assertIn("What shrank", back)
        self.assertRegex(back, r"^at the peak: .*\nat the end: ")
        few = harness.run([COMMAND, "diff", "--top", "1", self.scratch / "t", self.scratch / "u"], driver="sim").out
        self.assertIn("1 more: --top 2 shows them all\n", few)
        same = harness.run([COMMAND, "diff", self.scratch / "t", self.scratch / "t"], driver="sim").out
        self.assertIn("Nothing grew and nothing shrank", same)

    def test_the_waits_of_a_trace_are_told_by_cause_the_longest_first(self):
        self.assertEqual(0, self.play("a:x:1000", "m:x:1", "s", "s", "w").code)
        said = harness.run([COMMAND, "waits", self.scratch / "t"], driver="sim")
        self.assertEqual(0, said.code, said.err)
        self.assertRegex(said.out, r"(?m)^  synchronisation: .* in 2 calls")
        self.assertRegex(said.out, r"(?m)^  cuCtxSynchronize, synchronisation: .* in 2 calls, .* at most; the longest began at 0\.")

    def test_a_compressed_trace_says_what_the_trace_says(self):
        self.play("t:1:512:100000", "a:x:1000")
        packed = self.scratch / "packed"
        done = harness.run([COMMAND, "trace", "--compress", "-o", packed, self.scratch / "t"], driver="sim")
        if "not installed" in done.err:
            self.skipTest("there is no libzstd")
        self.assertEqual((0, ""), (done.code, done.err))
        self.assertLess(packed.stat().st_size, (self.scratch / "t").stat().st_size)
        self.assertEqual(self.read().out, self.read(packed).out)
        self.assertEqual(self.dump(), self.dump(packed))
        again = harness.run([COMMAND, "trace", "--compress", "-o", packed, self.scratch / "t"], driver="sim")
        self.assertIn("File exists", again.err)
        cut = packed.read_bytes()
        packed.write_bytes(cut[:len(cut) // 2])
        self.assertIn("events in", self.read(packed).out)

    def test_no_trace_is_no_trace_in_a_sentence(self):
        (self.scratch / "t").write_bytes(b"x" * 1000)
        self.assertIn("it is no trace of cupool", self.read(code=1).err)
        os.mkfifo(self.scratch / "pipe")
        self.assertIn("it is not a file", self.read(self.scratch / "pipe", code=1).err)
        self.assertIn("cannot open", self.read(self.scratch / "missing", code=1).err)


if __name__ == "__main__":
    harness.main()
