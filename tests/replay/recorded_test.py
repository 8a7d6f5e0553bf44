"""Programs that ran under the library, on the simulated driver, replayed from their traces; and runs as replays foretold them."""

import itertools
import json
import random

import harness

COMMAND = harness.BUILD / "cupool"
SCRIPT = harness.BUILD / "tests" / "report" / "script"
CROWD = harness.BUILD / "tests" / "replay" / "crowd"
DATA = harness.SOURCE / "tests" / "data"
MIB = 1 << 20
# What goes back when depends on how fast the machine is.
STEADY = {"CUPOOL_DECAY_MS": "0"}
COUNTERS = ("allocations", "thread_hits", "slab_hits", "range_hits", "hits_after_wait", "misses", "segments_allocated", "segments_released",
            "peak_live_bytes", "peak_reserved_bytes", "reserved_bytes")
SETTINGS = ("", "segments=mapped", "segments=mapped,chunk=4M", "segment_exact=8M,thread_cache=0", "max_cached=64M", "split=no", "streams=exact", "streams=fences")


class RecordedTest(harness.TestCase):
    def run_with_report(self, command, env):
        """A run under the library, and the counters of its report."""
        report = self.scratch / "report.json"
        report.unlink(missing_ok=True)
        more = {"CUPOOL_STATS": "json", "CUPOOL_STATS_FILE": str(report), "CUPOOL_SIM_MEMORY": "16G", **STEADY, **env}
        done = harness.with_cupool(command, env=more, driver="sim")
        self.assertEqual(0, done.code, done.err)
        return json.loads(report.read_text())

    def rows(self, path, *flags):
        """The rows of one trace by their names."""
        done = harness.run([COMMAND, "replay", "--json", *flags, path], env=STEADY)
        self.assertEqual(0, done.code, done.err)
        (only,) = json.loads(done.out)
        return {row["with"]: row for row in only["rows"]}

    def same_as_recorded(self, trace, report, setting=""):
        flags = ["--set", setting] if setting else []
        row = self.rows(trace, *flags)[" ".join(["cupool", *flags[1:]])]
        self.assertEqual({name: report[name] for name in COUNTERS}, {name: row[name] for name in COUNTERS}, setting)
        self.assertEqual(row["compared"], row["agreed"], setting)
        self.assertEqual(0, row["served_otherwise"], setting)
        self.assertEqual(report["stream_waits"] + report["context_waits"] + report["pool_waits"], row["waits"], setting)
        return row

    def run_and_replay(self, command, setting=""):
        """The device goes at its own pace: when the pool saw work done is in the trace."""
        trace = self.scratch / "t.trace"
        trace.unlink(missing_ok=True)
        env = {"CUPOOL_" + name.upper(): value for name, value in (entry.split("=") for entry in setting.split(",") if entry)}
        report = self.run_with_report(command, {"CUPOOL_TRACE": str(trace), **env})
        return self.same_as_recorded(trace, report, setting)

    def steps(self, seed, streams):
        """A program for the scripted victim: blocks come and go, with work on them that is hardly ever waited for."""
        rng = random.Random(seed)
        out, held = [], []
        for i in range(2500):
            if held and rng.random() < 0.47:
                out.append("f:" + held.pop(rng.randrange(len(held))))
            else:
                held.append(f"b{i}")
                out.append(f"a:b{i}:{rng.choice([300, 5000, 70000, 900000, 4 * MIB]) + rng.randrange(200)}")
                if rng.random() < 0.6:
                    out.append(f"m:b{i}:{1 + rng.randrange(streams)}")
            if rng.random() < 0.03:
                out.append("s")
        return out

    def test_the_replay_of_a_trace_gives_the_counters_of_the_run(self):
        for seed, setting in enumerate(SETTINGS):
            for streams in (1, 3):
                self.assertGreater(self.run_and_replay([SCRIPT, *self.steps(seed, streams)], setting)["compared"], 0)

    def test_the_replay_of_a_real_program_s_trace_gives_its_counters(self):
        for name in ("conv", "gnn", "llama"):
            self.run_and_replay([COMMAND, "replay", "--play", DATA / f"{name}.trace.gz"])
        for setting in ("max_cached=64M", "streams=exact", "split=no"):
            self.run_and_replay([COMMAND, "replay", "--play", DATA / "gnn.trace.gz"], setting)

    def test_the_replay_of_threads_that_take_turns_and_end_gives_the_counters_of_the_run(self):
        for seed, (threads, setting) in enumerate(itertools.product((2, 4), ("", "segments=mapped", "streams=exact", "max_cached=64M"))):
            row = self.run_and_replay([CROWD, str(threads), "700", str(seed), "turns"], setting)
            self.assertEqual(row["allocations"], row["served_alike"])

    def test_the_replay_of_threads_that_run_together_is_whole_and_says_what_was_served_otherwise(self):
        trace = self.scratch / "crowd.trace"
        report = self.run_with_report([CROWD, "4", "500", "1", "together"], {"CUPOOL_TRACE": str(trace)})
        row = self.rows(trace)["cupool"]
        self.assertEqual((report["allocations"], 0), (row["allocations"], row["failed_allocations"]))
        self.assertEqual(row["allocations"], row["served_alike"] + row["served_otherwise"])

    def test_a_replay_with_other_settings_says_that_blocks_were_served_otherwise(self):
        trace = self.scratch / "t.trace"
        self.run_with_report([SCRIPT, *self.steps(1, 1)], {"CUPOOL_TRACE": str(trace), "CUPOOL_THREAD_CACHE": "0"})
        said = "allocations were served otherwise than in the recorded run"
        self.assertIn(said, harness.run([COMMAND, "replay", trace], env=STEADY).out)
        self.assertNotIn(said, harness.run([COMMAND, "replay", trace], env={**STEADY, "CUPOOL_THREAD_CACHE": "0"}).out)

    def test_a_run_needs_what_its_replay_foretold(self):
        for name in ("gpt", "conv", "llama", "gnn"):
            command = [COMMAND, "replay", "--play", DATA / f"{name}.trace.gz"]
            trace = self.scratch / f"{name}.trace"
            before = self.run_with_report(command, {"CUPOOL_TRACE": str(trace)})["peak_reserved_bytes"]
            found = json.loads(harness.run([COMMAND, "tune", "--json", trace], env=STEADY).out)
            self.assertEqual(before, found["before"]["peak_reserved_bytes"])
            said = found["after"]["peak_reserved_bytes"]
            self.assertLess(said, before)
            needed = self.run_with_report(command, dict(one["set"].split("=", 1) for one in found["set"]))["peak_reserved_bytes"]
            self.assertLessEqual(abs(said - needed), 0.01 * needed, (name, found["set"]))

    def test_without_splitting_a_run_needs_what_its_replay_foretold(self):
        for name in ("gpt", "conv", "llama", "gnn"):
            path = DATA / f"{name}.trace.gz"
            said = self.rows(path, "--set", "split=no")["cupool split=no"]
            self.assertGreater(said["peak_taken_bytes"], 1.01 * said["peak_reserved_bytes"], name)
            command = [COMMAND, "replay", "--play", path]
            for memory, is_refused in ((said["peak_taken_bytes"], False), (said["peak_taken_bytes"] - 2 * MIB, True)):
                run = self.run_with_report(command, {"CUPOOL_SPLIT": "no", "CUPOOL_SIM_MEMORY": str(memory)})
                self.assertEqual(is_refused, run["driver_refusals"] > 0, (name, memory))
                if not is_refused:
                    self.assertLessEqual(abs(said["peak_reserved_bytes"] - run["peak_reserved_bytes"]), 0.01 * run["peak_reserved_bytes"], name)

    def test_gpu_plays_under_the_library_and_without_it(self):
        env = {"LD_LIBRARY_PATH": str(harness.BUILD / "sim"), "CUPOOL_SIM_MEMORY": "16G", "CUPOOL_NEIGHBOURS": "no"}
        done = harness.run([COMMAND, "replay", "--gpu", "--json", "--set", "segments=mapped", DATA / "gnn.trace.gz"], env=env, driver="sim")
        self.assertEqual(0, done.code, done.err)
        (only,) = json.loads(done.out)
        rows = {row["with"]: row for row in only["rows"]}
        self.assertEqual({"cupool", "cupool segments=mapped", "the driver alone"}, set(rows))
        self.assertEqual(2692, rows["the driver alone"]["allocations"])
        for row in rows.values():
            self.assertGreater(row["peak_reserved_bytes"], 500 * MIB)


if __name__ == "__main__":
    harness.main()
