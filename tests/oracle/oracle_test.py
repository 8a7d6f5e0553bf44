"""The oracle is proven: careless caches are caught whatever the schedule did, correct programs never accused."""

import os

import harness
from sanitizer import fewer

HAZARD = 86
ADDED_WAIT = 88
SEEDS = fewer(int(os.environ.get("CUPOOL_ORACLE_SEEDS", "100")))
OBSERVER = harness.BUILD / "sim" / "libcupool_observer.so"
HERE = harness.BUILD / "tests" / "oracle"
PROGRAM = HERE / "oracle_program"
CARELESS = HERE / "libcareless.so"


def play(seed, way=None, threads=1, rounds=150, observer=True, managed=False, waits="any"):
    """The program at one seed, with the cache that errs that way behind the observer (none: the bare driver)."""
    preload = ([OBSERVER] if observer else []) + ([CARELESS] if way else [])
    settings = {"CUPOOL_SIM_SEED": str(seed), "CUPOOL_SIM_WAITS": waits, **({"CARELESS": way} if way else {})}
    words = [PROGRAM, seed, rounds, threads, *(["managed"] if managed else [])]
    return harness.run(words, preload=preload, env=settings, driver="sim")


class OracleTest(harness.TestCase):
    def assert_caught(self, way, story, **how):
        for seed in range(1, 1 + fewer(10, least=2)):
            result = play(seed, way, **how)
            self.assertEqual(HAZARD, result.code, f"{way}, seed {seed}\n{result.err}")
            self.assertGreater(result.device["hazards"], 0)
            self.assertIn(story, result.err)

    def assert_added(self, way, story, **how):
        for seed in range(1, 1 + fewer(10, least=2)):
            result = play(seed, way, **how)
            self.assertEqual(ADDED_WAIT, result.code, f"{way}, seed {seed}\n{result.err}")
            self.assertEqual(0, result.device["hazards"])
            self.assertGreater(result.device["added_waits"], 0)
            self.assertRegex(result.err, story)

    def assert_never_accused(self, seeds, **how):
        for seed in range(1, seeds + 1):
            result = play(seed, **how)
            self.assertEqual((0, 0), (result.code, result.device.get("hazards")), f"seed {seed}\n{result.err}")

    def test_a_cache_that_reuses_at_once_is_caught_at_once(self):
        self.assert_caught("at-once", "is not ordered after")

    def test_a_cache_that_waits_on_the_wrong_stream_is_caught(self):
        self.assert_caught("wrong-stream", "is not ordered after")

    def test_a_cache_whose_event_comes_before_the_last_launch_is_caught(self):
        self.assert_caught("early-event", "is not ordered after")

    def test_a_cache_that_trusts_the_legacy_stream_to_cover_non_blocking_ones_is_caught(self):
        self.assert_caught("legacy", "on non-blocking stream")

    def test_a_cache_that_gives_memory_to_two_owners_is_caught(self):
        self.assert_caught("twice", "two owners at once")

    def test_a_cache_that_only_fences_managed_memory_is_caught_when_the_host_touches_it(self):
        self.assert_caught("fence", "a touch by the host of life", managed=True)

    def test_a_cache_that_takes_a_stream_to_order_programmatic_launches_is_caught(self):
        for seed in range(1, 1 + fewer(10, least=2)):
            result = harness.run([harness.victim("waits"), "programmatic-next"], preload=[OBSERVER, CARELESS], driver="sim",
                                 env={"CUPOOL_SIM_SEED": str(seed), "CARELESS": "stream-fence"})
            self.assertEqual(HAZARD, result.code, f"seed {seed}\n{result.err}")

    def test_a_cache_that_makes_a_context_wait_for_work_after_the_last_free_is_caught(self):
        self.assert_added("late-event", "all later work of context .* is made to wait for")

    def test_a_cache_that_makes_a_stream_wait_for_work_after_the_last_free_is_caught(self):
        self.assert_added("late-stream", r"stream #\d+ is made to wait for\n +operation \d+")

    def test_a_cache_that_waits_on_the_host_is_caught(self):
        self.assert_added("host", r"thread \d+ is made to wait for")

    def test_an_added_wait_tells_both_sides_story(self):
        result = play(3, "late-event")
        self.assertRegex(result.err, r"added wait: all later work of context 1 is made to wait for\n +operation \d+ .*of .*"
                                     r"stream #\d+,\n +which was submitted after the last free: cuCtxWaitEvent by the "
                                     r"preloaded library inside the application's cuMemAlloc_v2, thread \d+, for an event "
                                     r"recorded by the preloaded library inside the application's cuMemAlloc_v2")

    def test_added_waits_can_be_left_alone(self):
        self.assert_never_accused(3, way="late-event", waits="off")

    def test_a_cache_whose_streams_wait_for_events_of_frees_is_never_accused(self):
        self.assert_never_accused(SEEDS // 2, way="stream-fence")
        self.assert_never_accused(SEEDS // 5, way="stream-fence", waits="exact")

    def test_a_cache_that_waits_for_a_free_is_not_accused_of_its_own_wait_in_a_stream(self):
        self.assert_never_accused(SEEDS // 2, way="own-wait")

    def test_a_hazard_tells_both_sides_story(self):
        result = play(3, "at-once")
        self.assertRegex(result.err, r"hazard: (fill|check|cuMemcpy\w*|cuMemset\w*) on .* of life \d+ \(cuMemAlloc, \d+ bytes")
        self.assertRegex(result.err, r"is not ordered after\n +(fill|check) on .* of life \d+")
        self.assertRegex(result.err, r"on bytes \[0x[0-9a-f]+, 0x[0-9a-f]+\)")

    def test_the_verdict_does_not_depend_on_what_the_schedule_happened_to_do(self):
        for seed in range(1, 1 + fewer(15, least=2)):
            result = harness.run([PROGRAM, 5, 150, 1], preload=[OBSERVER, CARELESS], driver="sim",
                                 env={"CUPOOL_SIM_SEED": str(seed), "CARELESS": "at-once"})
            self.assertEqual(HAZARD, result.code, f"schedule {seed}")

    def test_one_seed_gives_one_run(self):
        first, second = play(7), play(7)
        self.assertEqual((first.out, first.device), (second.out, second.device))

    def test_a_correct_program_is_never_accused(self):
        self.assert_never_accused(SEEDS)

    def test_a_correct_program_is_never_accused_without_an_observer(self):
        self.assert_never_accused(SEEDS // 4, observer=False)

    def test_a_correct_program_with_threads_is_never_accused(self):
        self.assert_never_accused(SEEDS // 5, threads=3, rounds=60)

    def test_a_cache_that_fences_is_never_accused(self):
        self.assert_never_accused(SEEDS, way="fence")

    def test_a_cache_that_asks_first_is_never_accused(self):
        self.assert_never_accused(SEEDS // 2, way="query")

    def test_managed_memory_handed_out_once_its_work_is_done_is_never_accused(self):
        self.assert_never_accused(SEEDS // 5, way="query", managed=True)
        self.assert_never_accused(SEEDS // 5, managed=True)

    def test_a_cache_that_fences_under_threads_is_never_accused(self):
        self.assert_never_accused(SEEDS // 5, way="fence", threads=3, rounds=60)


if __name__ == "__main__":
    harness.main()
