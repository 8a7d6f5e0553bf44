"""cupool compare says what the pool gains for a program, and no more than its runs can tell."""

import json
import statistics

import harness
import lab

COMMAND = harness.BUILD / "cupool"
ENDS = harness.BUILD / "tests" / "report" / "ends"
MIB = lab.MIB


class CompareTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.need_no_sanitizer("its runtime must be preloaded into bare runs, too")

    def compare(self, *words, count=3, env=None, flags=("--json",)):
        return harness.run([COMMAND, "compare", "-n", str(count), *flags, "--", *words], env=env, driver="sim")

    def answer(self, *words, **options):
        done = self.compare(*words, **options)
        self.assertEqual(0, done.code, done.err)
        return json.loads(done.out)

    def told(self, bare, pool):
        """The rule, stated once more: in 19 of 20 pairs of runs the same side needs less."""
        if min(len(bare), len(pool)) < 3:
            return "too few runs to tell"
        before, after = statistics.median(bare), statistics.median(pool)
        share = sum((b < a) + (a == b) / 2 for a in bare for b in pool) / len(bare) / len(pool)
        if abs(after - before) <= 0.01 * before:
            return "the same within a hundredth"
        return "less under cupool" if share >= 0.95 else "more under cupool" if share <= 0.05 else "within the noise"

    def test_what_is_told_follows_from_the_runs(self):
        for count in (1, 3, 5):
            answer = self.answer(lab.PROGRAM, *lab.fill(20, MIB), *lab.drain(20), count=count)
            for quantity, runs in (("seconds", count), ("device_bytes", min(count, 3))):
                with self.subTest(count=count, quantity=quantity):
                    sides = answer[quantity]
                    for side in ("bare", "cupool"):
                        samples = sides[side]["samples"]
                        self.assertEqual(runs, len(samples))
                        self.assertAlmostEqual(statistics.median(samples), sides[side]["median"])
                        self.assertEqual((min(samples), max(samples)), (sides[side]["least"], sides[side]["most"]))
                    self.assertEqual(self.told(sides["bare"]["samples"], sides["cupool"]["samples"]), sides["told"])
                    self.assertAlmostEqual(1 - sides["cupool"]["median"] / sides["bare"]["median"], sides["gain"])
            time, memory = answer["seconds"]["told"], answer["device_bytes"]["told"]
            verdict = answer["verdict"]
            if time == "too few runs to tell":
                self.assertTrue(verdict.startswith("too few runs to tell"), verdict)
            elif time == "less under cupool":
                self.assertTrue(verdict.startswith("a trade" if memory == "more under cupool" else "worth it"), verdict)
            elif memory == "less under cupool":
                self.assertTrue(verdict.startswith("a trade" if time == "more under cupool" else "worth it for its memory"), verdict)
            else:
                self.assertTrue(verdict.startswith("not worth it"), verdict)
            self.assertEqual(time == "within the noise", "within the noise" in verdict)

    def test_peaks_of_device_memory_are_those_of_the_driver_with_and_without_the_pool(self):
        # The first is freed before the second comes: the most at once is 48 MiB.
        steps = (f"a:x:{48 * MIB}", "f:x", f"a:y:{32 * MIB}", "f:y")
        sides = self.answer(lab.PROGRAM, *steps)["device_bytes"]
        self.assertEqual([48.0 * MIB] * 3, sides["bare"]["samples"])
        # The pool keeps the first, and gives it to the second.
        self.assertEqual([48.0 * MIB] * 3, sides["cupool"]["samples"])
        self.assertEqual("the same within a hundredth", sides["told"])
        # What the driver does not see as an address counts as well.
        sides = self.answer(lab.PROGRAM, f"o:x:{40 * MIB}", f"a:y:{2 * MIB}")["device_bytes"]
        self.assertEqual(sides["bare"]["samples"], sides["cupool"]["samples"])
        self.assertGreaterEqual(sides["bare"]["least"], 40 * MIB)

    def test_more_memory_under_the_pool_is_said(self):
        answer = self.answer(lab.PROGRAM, f"a:x:{33 * MIB}", f"a:y:{3 * MIB}", "f:x", f"a:z:{60 * MIB}", env={"CUPOOL_DECAY_MS": "0"})
        sides = answer["device_bytes"]
        self.assertGreater(sides["cupool"]["least"], sides["bare"]["most"])
        self.assertEqual("more under cupool", sides["told"])
        self.assertRegex(answer["verdict"], r"% more device memory")

    def test_a_program_without_device_memory_is_not_worth_it(self):
        for words in (["true"], [lab.PROGRAM, "s"]):
            answer = self.answer(*words)
            self.assertEqual("not worth it: there was nothing for cupool to serve.", answer["verdict"])
            self.assertIsNone(answer["device_bytes"]["bare"])
            self.assertIsNone(answer["device_bytes"]["gain"])
            self.assertEqual(("", 0), (answer["device_bytes"]["told"], answer["served_allocations"]))
            self.assertNotIn("after an allocation", self.compare(*words, flags=()).out)

    def test_what_the_pool_served_is_counted_for_one_run(self):
        self.assertEqual(5, self.answer(lab.PROGRAM, *lab.fill(4, 1000), "g:x:1000")["served_allocations"])

    def test_a_program_that_fails_is_said_first_and_keeps_its_exit_code(self):
        under = 'case "$LD_PRELOAD$CUPOOL_WATCH_DEVICE" in *libcupool.so) exit 9;; esac'
        bare = 'case "$LD_PRELOAD" in *libcupool*) ;; *) kill -SEGV $$;; esac'
        other = 'case "$LD_PRELOAD" in *libcupool*) exit 9;; *) exit 8;; esac'
        for words, code, verdict in (([ENDS, "served", "segv"], 139, "the program fails with and without cupool: it was killed by SIGSEGV."),
                                     ([ENDS, "served", "exit"], 3, "the program fails with and without cupool: it ended with exit code 3."),
                                     (["sh", "-c", under], 9, "the program fails under cupool alone: it ended with exit code 9."),
                                     (["sh", "-c", bare], 139, "the program fails without cupool: it was killed by SIGSEGV."),
                                     (["sh", "-c", other], 8, "the program fails with and without cupool: without it ended with exit code 8, "
                                                              "under it ended with exit code 9.")):
            with self.subTest(verdict=verdict):
                told = self.compare(*words)
                self.assertEqual((code, verdict), (told.code, json.loads(told.out)["verdict"]))
                text = self.compare(*words, flags=())
                self.assertEqual((code, "verdict: " + verdict), (text.code, " ".join(text.out.split())))

    def test_bare_is_without_the_library_and_comes_in_turns(self):
        place = self.scratch / "seen"
        show = f'echo "$LD_PRELOAD.$CUPOOL_COUNTS_FILE.$CUPOOL_BACKEND" >> {place}'
        # Also where the library is preloaded already.
        for preload in ("", str(harness.LIBRARY)):
            with self.subTest(preload=preload):
                self.answer("sh", "-c", show, count=2, env={"LD_PRELOAD": preload})
                seen = ["bare" if line == ".." else "off" if line.endswith(".off") else "pool" for line in place.read_text().split()]
                # A first run of each, then memory, then time.
                self.assertEqual(["bare", "pool", "off", "pool", "pool", "off", "bare", "pool", "pool", "bare"], seen)
                place.unlink()

    def test_what_the_program_prints_is_compared(self):
        self.assertEqual(("the same", "the same"), tuple(self.answer("sh", "-c", "echo a; echo b >&2")[k] for k in ("stdout", "stderr")))
        answer = self.answer("sh", "-c", 'case "$LD_PRELOAD" in *libcupool*) echo pool >&2;; esac; echo $$')
        self.assertEqual("differs under cupool", answer["stderr"])
        self.assertEqual("differs from run to run without cupool, so it cannot be compared", answer["stdout"])

    def test_every_run_reads_the_same_input(self):
        whole = self.scratch / "input"
        whole.write_text("some\nlines\n")
        command = f'exec {COMMAND} compare -n 1 --json -- cat < {whole}'
        answer = json.loads(harness.run(["sh", "-c", command], driver="sim").out)
        self.assertEqual("the same", answer["stdout"])

    def test_text_and_json_have_the_same_lines(self):
        text = self.compare(lab.PROGRAM, "a:x:1000", flags=())
        self.assertEqual(0, text.code)
        lines = text.out.splitlines()
        self.assertIn("3 runs of each for time, 3 for memory", lines[0])
        self.assertRegex(lines[2], r"^time +bare( +\d+\.\d{3} s){3}$")
        self.assertRegex(lines[3], r"^ +under cupool( +\d+\.\d{3} s){3}$")
        self.assertRegex(lines[4], r"^device memory +bare( +2 MiB){3}$")
        self.assertRegex(lines[5], r"^ +under cupool( +2 MiB){3}$")
        self.assertIn("device memory: the same within a hundredth", lines)
        self.assertLessEqual(max(map(len, lines[:6])), 80)
        said = lines.index("stdout: the same")
        self.assertEqual("stderr: the same", lines[said + 1])
        self.assertTrue(lines[said + 2].startswith("verdict: "))

    def test_the_number_of_runs_is_a_number(self):
        for words, said in ((["-n", "0", "true"], "from 1 to 1000"), (["-n", "x", "true"], "from 1 to 1000"), (["-n"], "-n needs a value"),
                            ([], "compare needs a program"), (["-n", "1001", "true"], "from 1 to 1000")):
            done = harness.run([COMMAND, "compare", *words], driver="sim")
            self.assertEqual((2, ""), (done.code, done.out), words)
            self.assertIn(said, done.err)
        done = harness.run([COMMAND, "compare", "--", "no-such-program"], driver="sim")
        self.assertEqual(127, done.code)


if __name__ == "__main__":
    harness.main()
