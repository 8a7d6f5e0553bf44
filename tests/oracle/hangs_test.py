"""The simulated driver tells a hang that only a preloaded library causes from one of the program's own."""

import harness
from sanitizer import THREAD, fewer

OWN_HANG = 89
HANG = 87
ADDED_WAIT = 88
OBSERVER = harness.BUILD / "sim" / "libcupool_observer.so"
HERE = harness.BUILD / "tests" / "oracle"
PROGRAM = HERE / "hangs"
CARELESS = HERE / "libcareless.so"
# A thread of that sanitizer's own may be seen at work.
PROOF = "(?:no thread can go on|nothing moved for 3000 ms)" if THREAD else "no thread can go on"


def play(command, way=None, seed=1, **settings):
    """A program under the cache that errs that way (none: the bare driver), behind the observer."""
    # The thread sanitizer's own thread never sleeps for good, so that nothing can be proven beside it.
    patience = {"CUPOOL_SIM_HANG_MS": "3000"} if THREAD else {}
    env = {"CUPOOL_SIM_SEED": str(seed), **({"CARELESS": way} if way else {}), **patience, **settings}
    return harness.run(command, preload=[OBSERVER, *([CARELESS] if way else [])], env=env, driver="sim")


class HangsTest(harness.TestCase):
    def assert_ends(self, code, command, way=None, story="", **settings):
        for seed in range(1, 1 + fewer(8, least=2)):
            result = play(command, way, seed, **settings)
            self.assertEqual(code, result.code, f"{command}, {way}, seed {seed}\n{result.out}{result.err}")
            if story:
                self.assertRegex(result.err, story)

    def test_a_program_that_hangs_by_itself_is_told_so(self):
        for how in ("word", "free", "function", "threads"):
            self.assert_ends(OWN_HANG, [PROGRAM, how], story=f"the program itself hangs, seed \\d+ \\({PROOF}\\)")

    def test_a_program_that_hangs_by_itself_is_told_so_under_a_library_that_adds_waits(self):
        for how in ("word", "free", "function", "threads"):
            self.assert_ends(OWN_HANG, [PROGRAM, how], "late-event")

    def test_a_program_that_asks_for_ever_is_found_in_time(self):
        self.assert_ends(OWN_HANG, [PROGRAM, "polls"], story="nothing moved for 200 ms", CUPOOL_SIM_HANG_MS="200")

    def test_a_thread_that_comes_late_is_waited_for(self):
        self.assert_ends(0, [PROGRAM, "late"])
        self.assert_ends(0, [PROGRAM, "late"], "fence")

    def test_a_thread_whose_wait_is_over_but_which_has_not_run_since_is_waited_for(self):
        self.assert_ends(0, [PROGRAM, "kept"])

    def test_a_library_that_waits_for_later_work_on_the_device_is_told_to_cause_the_hang(self):
        for case in ("reused-waiting-65536", "reused-both-1M", "threads-other"):
            self.assert_ends(HANG, [harness.victim("waits"), case], "late-event",
                             "a hang that only the preloaded library causes")

    def test_a_library_that_waits_for_later_work_on_the_host_is_told_to_cause_the_hang(self):
        for case in ("reused-waiting-65536", "host-function-reused", "host-kernel-reused", "threads-other"):
            self.assert_ends(HANG, [harness.victim("waits"), case], "host", r"waits in cuCtxSynchronize, made by the preloaded "
                             r"library inside the application's cuMemAlloc_v2, thread \d+\n +\(a wait that was added")

    def test_a_library_whose_streams_wait_for_events_of_frees_hangs_nothing(self):
        for case in ("reused-waiting-65536", "reused-both-1M", "host-function-reused", "host-kernel-reused", "both-ways",
                     "events", "threads-same", "threads-other", "turns"):
            self.assert_ends(0, [harness.victim("waits"), case], "stream-fence")

    def test_a_hang_tells_both_sides_story(self):
        result = play([harness.victim("waits"), "reused-waiting-65536"], "late-stream")
        self.assertEqual(HANG, result.code, result.err)
        self.assertRegex(result.err, r"thread \d+ waits in cuCtxSynchronize, made by the application")
        self.assertRegex(result.err, r"stream #\d+ of context \d+ waits before its operation \d+ \(wait value\)\n +for a word in "
                                     r"memory that nobody has written")
        self.assertRegex(result.err, r"stream #\d+ of context \d+ waits before its operation \d+ \(event wait made by the preloaded "
                                     r"library inside the application's cuLaunchKernel, thread \d+ for an event recorded by the "
                                     r"preloaded library inside the application's cuMemAlloc_v2, thread \d+\)\n +for operation "
                                     r"\d+ \(wait value\) of non-blocking stream #\d+, only because of a wait that was added")

    def test_a_wait_for_the_free_of_another_thread_is_added_to_the_letter_only(self):
        command = [harness.victim("waits"), "threads-other"]
        self.assert_ends(0, command, "fence")
        self.assert_ends(ADDED_WAIT, command, "fence", "after the last free of that thread", CUPOOL_SIM_WAITS="exact")


if __name__ == "__main__":
    harness.main()
