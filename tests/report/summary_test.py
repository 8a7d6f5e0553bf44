"""The summary that every run prints: each of its figures against the simulated driver's own account, small programs first."""

import json
import random
import re

import harness
import lab
from lab import MIB, drain, fill
from sanitizer import fewer

PROGRAMS = fewer(200)
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def as_printed(count):
    """A number of bytes as the summary writes it."""
    for unit in ("GiB", "MiB", "KiB"):
        if count >= UNITS[unit]:
            tenths = (count * 10 + UNITS[unit] // 2) // UNITS[unit]
            return f"{tenths / 10:.1f}".removesuffix(".0") + " " + unit
    return f"{count} B"


def random_program(seed):
    """The steps of one program: the first few are one or two calls long, the last a few hundred."""
    rng = random.Random(seed)
    sizes = [[8], [1, 500, 4096], [4096, 70000, MIB], [8, 3000, 100000, 3 * MIB, 30 * MIB]][min(3, seed // 40)]
    live, steps = [], []
    for i in range(1 + seed * seed // 200):
        if live and rng.random() < 0.4:
            steps.append(f"f:{live.pop(rng.randrange(len(live)))}")
        else:
            live.append(f"n{i}")
            steps.append(f"a:n{i}:{rng.choice(sizes)}")
        if rng.random() < 0.05:
            steps.append("s")
    return steps


class SummaryTest(harness.TestCase):
    def summary(self, *steps, preload=(), **options):
        """What is said on stderr, with the report beside it and the run's output."""
        env = {f"CUPOOL_{name.upper()}": str(value) for name, value in options.items()}
        report = self.scratch / "report.json"
        report.unlink(missing_ok=True)
        done = harness.with_cupool([lab.PROGRAM, *steps], env={"CUPOOL_STATS": "summary", "CUPOOL_STATS_FILE": str(report), **env},
                                   driver="sim")
        done.report = json.loads(report.read_text()) if report.exists() else {}
        return done

    def assert_figures(self, steps, **options):
        """Runs the program bare, and under cupool with its live bytes read after every step; every figure must agree."""
        bare = harness.run([lab.PROGRAM, *steps], driver="sim").device
        watched = [word for step in steps for word in (step, "p:live_bytes")]
        done = self.summary(*watched, **options)
        live = [int(line.split()[1]) for line in done.out.splitlines() if line.startswith("live_bytes ")]
        peak_live = max([0, *live])
        allocations, frees = bare["alloc_calls"], bare["free_calls"]
        calls, released = done.device["alloc_calls"], done.device["free_calls"]
        first, second, *rest = done.err.splitlines()
        self.assertRegex(first, rf"^cupool: script\[\d+\]: {allocations} allocation{'' if allocations == 1 else 's'}[,;]")
        reused = done.report["reused"]
        self.assertLessEqual(reused, allocations - done.report["misses"] if frees else 0)
        part = 100 * reused / allocations
        self.assertIn("none reused" if reused == 0 else f"{part:.{3 if 99.95 <= part < 100 else 1}f} % reused", first)
        reserved = done.device["peak_bytes"]
        self.assertEqual(f"cupool: peak live {as_printed(peak_live)}, peak reserved {as_printed(reserved)} on 1 device, "
                         f"{as_printed(reserved - peak_live)} of it idle", second)
        self.assertEqual((peak_live, reserved, bare["peak_asked_bytes"]),
                         tuple(done.report[f"peak_{n}_bytes"] for n in ("live", "reserved", "asked")))
        (third,) = rest
        self.assertRegex(third, rf"^cupool: {calls} driver allocations? and {released} frees? took [\d.]+ ms")
        self.assertEqual(calls == 1, "1 driver allocation and" in third)
        waits = done.report["waits_avoided"]
        self.assertLessEqual(waits, frees)
        self.assertEqual(waits != 0, f"; {waits} device-wide wait{'' if waits == 1 else 's'} avoided" in third, third)

    def test_every_figure_of_the_summary_is_the_simulated_drivers_over_200_random_programs(self):
        for seed in range(PROGRAMS):
            with self.subTest(seed=seed):
                self.assert_figures(random_program(seed))

    def test_the_peak_of_one_thread_is_exact_for_small_programs(self):
        for steps, said in ((fill(200, 4096), "800 KiB"), (fill(1, 8), "512 B"), ([*fill(3, MIB), *drain(3)] * 5, "3 MiB")):
            self.assertIn(f"peak live {said},", self.summary(*steps).err)
        native = self.summary(*fill(200, 4096), backend="native")
        self.assertIn("peak live 800 KiB,", native.err)
        self.assertIn("200 allocations, all from the driver's stream-ordered pool; native", native.err)

    def test_one_thread_with_two_contexts_has_an_exact_peak(self):
        done = self.summary(*fill(10, MIB), "C", *fill(5, MIB, "c"), *drain(5, "c"), *fill(6, MIB, "d"), stats="summary")
        self.assertEqual(16 * MIB, done.report["peak_live_bytes"])
        self.assertIn("peak live 16 MiB,", done.err)

    def test_the_peak_of_several_threads_is_stated_as_a_bound(self):
        done = self.summary("h:4:300000:20", *fill(1, 1000))
        low, high = done.report["peak_live_bytes"], done.report["peak_live_most_bytes"]
        self.assertLess(low, high)
        self.assertLessEqual(high, done.report["peak_reserved_bytes"])
        self.assertTrue(low <= 80 * (304 << 10) <= high, (low, high))
        self.assertIn(f"peak live {as_printed(low)} to {as_printed(high)}, ", done.err)
        exact = self.summary("h:4:300000:20", *fill(1, 1000), stats_exact="yes")
        self.assertEqual(exact.report["peak_live_bytes"], exact.report["peak_live_most_bytes"])

    def test_no_wait_is_avoided_where_every_free_waits(self):
        steps = [*fill(5, 2 * MIB), *["m:b0:1"] * 40, *drain(5)]
        self.assertIn("; 1 device-wide wait avoided", self.summary(*steps).err)
        self.assertNotIn("avoided", self.summary(*steps, free="sync").err)

    def test_no_time_is_said_to_be_saved_because_nobody_can_know_it(self):
        done = self.summary(*([*fill(40, 4000000), *drain(40)] * 20), split="no")
        self.assertNotIn("saved", done.err)
        self.assertFalse([name for name in done.report if "saved" in name])

    def test_a_program_without_the_pool_reports_what_it_did(self):
        self.assertRegex(self.summary(*fill(3, 1000), backend="off").err, r"^cupool: script\[\d+\]: 3 allocations by the driver itself; off\n$")
        self.assertRegex(self.summary("g:x:5000", "f:x").err, r"^cupool: script\[\d+\]: 1 managed allocation; lanes\n$")
        for settings in ({"managed": "no"}, {"backend": "off"}):
            mode = settings.get("backend", "lanes")
            self.assertRegex(self.summary("g:x:5000", "g:y:5000", "f:x", **settings).err,
                             rf"^cupool: script\[\d+\]: 2 managed allocations by the driver itself; {mode}\n$")
        self.assertRegex(self.summary("g:x:5000", "a:y:10").err, r"^cupool: script\[\d+\]: 1 allocation, none reused, 1 managed allocation; ")

    def test_a_program_that_is_stepped_aside_in_or_allocates_nothing_is_silent(self):
        self.assertEqual("", self.summary(*fill(3, 1000), **{"except": "script"}).err)
        self.assertEqual("", self.summary(*fill(3, 1000), only="other").err)
        self.assertEqual("", self.summary("s").err)

    def test_quiet_silences_the_summary_and_never_a_warning(self):
        done = self.summary(*fill(3, 1000), "f:b0", "f:b0", log="quiet", check="yes", limit="junk")
        self.assertIn("CUPOOL_LIMIT=junk", done.err)
        self.assertIn("free of 0x", done.err)
        self.assertNotIn("peak live", done.err)
        short = self.summary(f"a:x:{90 * MIB}", f"a:y:{90 * MIB}", log="quiet", limit="100M")
        self.assertIn("CUPOOL_LIMIT", short.err)

    def test_failures_are_counted_in_words(self):
        steps = [f"a:x:{3 << 30}", f"a:y:{3 << 30}"]
        self.assertIn("1 allocation failed: out of memory\n", self.summary(*steps, oom_reports=0).err)
        self.assertIn("2 allocations failed: out of memory, 1 of them for more than the device has\n",
                      self.summary(*steps, f"a:z:{5 << 30}", oom_reports=0).err)
        self.assertIn("2 allocations failed: out of memory\n", self.summary(*steps, steps[1], oom_reports=0).err)
        self.assertIn("1 allocation failed: out of memory, for more than the device has\n", self.summary(f"a:z:{5 << 30}").err)


if __name__ == "__main__":
    harness.main()
