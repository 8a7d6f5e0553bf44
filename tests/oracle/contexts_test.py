"""The simulated driver knows that a free holds up its own context and no other: it tells what a library adds to that."""

import harness
from sanitizer import THREAD, fewer

HANG = 87
ADDED_WAIT = 88
OBSERVER = harness.BUILD / "sim" / "libcupool_observer.so"
HERE = harness.BUILD / "tests" / "oracle"
PROGRAM = HERE / "contexts"
CARELESS = HERE / "libcareless.so"


def play(case, way, seed, apart):
    """A program of two contexts, of one device or of two, under the cache that errs that way (none: the bare driver)."""
    # The thread sanitizer's own thread never sleeps for good, so that nothing can be proven beside it.
    patience = {"CUPOOL_SIM_HANG_MS": "3000"} if THREAD else {}
    env = {"CUPOOL_SIM_SEED": str(seed), "CUPOOL_SIM_DEVICES": "2", "CUPOOL_SIM_MEMORY": "256M", **patience,
           **({"CARELESS": way} if way else {})}
    return harness.run([PROGRAM, case, *(["devices"] if apart else [])], preload=[OBSERVER, *([CARELESS] if way else [])],
                       env=env, driver="sim")


class ContextsTest(harness.TestCase):
    def assert_ends(self, code, case, way=None, story="", seeds=6):
        for apart in (False, True):
            for seed in range(1, 1 + fewer(seeds, least=2)):
                result = play(case, way, seed, apart)
                self.assertEqual(code, result.code, f"{case}, {way}, apart {apart}, seed {seed}\n{result.out}{result.err}")
                if story:
                    self.assertRegex(result.err, story)

    def test_programs_of_two_contexts_are_right_by_themselves(self):
        for case in ("ranks-host", "ranks-device", "refused", "refused-awaits", "refused-here", "visit", "visit-busy",
                     "visit-none", "lock"):
            self.assert_ends(0, case, seeds=2)

    def test_a_library_that_keeps_a_free_to_its_context_is_never_accused(self):
        for case in ("ranks-host", "ranks-device", "visit-none"):
            self.assert_ends(0, case, "fence")

    def test_a_library_that_makes_another_context_wait_is_caught(self):
        story = (r"fill on non-blocking stream #\d+ \(its operation \d+, thread \d+\) is made to wait for\n +operation \d+ .*of "
                 r"non-blocking stream #\d+,\n +which is work of another context that no free of that thread waited for: ")
        self.assert_ends(ADDED_WAIT, "ranks-host", "all-contexts", story + "all later work of context .*, cuCtxWaitEvent by the "
                         r"preloaded library inside the application's cuMemAlloc_v2")
        self.assert_ends(ADDED_WAIT, "ranks-host", "stream-fence", story + ".*, cuStreamWaitEvent by the preloaded library "
                         r"inside the application's cuLaunchKernel")

    def test_a_library_that_makes_another_context_wait_is_told_to_cause_the_hang(self):
        for way in ("all-contexts", "stream-fence"):
            self.assert_ends(HANG, "ranks-device", way, "a hang that only the preloaded library causes")

    def test_a_refused_context_waits_for_no_other(self):
        self.assert_ends(ADDED_WAIT, "refused", "refused-others", r"thread \d+ is made to wait for\n.*,\n +which is work of another "
                         r"context that no free of that thread waited for: cuCtxSynchronize")
        self.assert_ends(HANG, "refused-awaits", "refused-others", "a hang that only the preloaded library causes")

    def test_a_refused_context_may_wait_for_itself(self):
        self.assert_ends(0, "refused-here", "refused-own")

    def test_a_copy_may_wait_for_the_old_life_of_a_block_of_another_context(self):
        self.assert_ends(0, "visit", "visit")
        self.assert_ends(0, "visit-busy", "visit")
        self.assert_ends(0, "visit", "visit-any")

    def test_a_copy_that_waits_for_newer_work_of_another_context_is_caught(self):
        self.assert_ends(ADDED_WAIT, "visit-busy", "visit-now", r"cuMemcpyPeerAsync on .* is made to wait for")

    def test_a_copy_that_waits_for_another_context_without_naming_its_memory_is_caught(self):
        self.assert_ends(ADDED_WAIT, "visit-none", "visit-any", r"cuMemcpyDtoDAsync_v2 on .* is made to wait for")

    def test_a_library_whose_lock_is_held_while_a_call_stands_is_told_to_cause_the_hang(self):
        self.assert_ends(HANG, "lock", "query", r"a thread does not come back from its cuMem(Alloc|Free)_v2", seeds=2)


if __name__ == "__main__":
    harness.main()
