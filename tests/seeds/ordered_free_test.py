"""cuMemFreeAsync of a block: the next owner's work comes after that stream reaches the free."""

import harness
from sanitizer import fewer

HAZARD = 86
OBSERVER = harness.BUILD / "sim" / "libcupool_observer.so"
WITHOUT = harness.BUILD / "tests" / "seeds" / "without" / "libcupool.so"
SEEDS = range(1, 1 + fewer(40, least=4))


class OrderedFreeTest(harness.TestCase):
    def play(self, seed, *words, library=harness.LIBRARY, **env):
        return harness.run([harness.victim("ordered_free"), *words], preload=[OBSERVER, library], driver="sim",
                           env={"CUPOOL_SIM_SEED": str(seed), **env})

    def assert_in_order(self, *words):
        for seed in SEEDS:
            for mode in ({}, {"CUPOOL_STREAMS": "fences"}, {"CUPOOL_SPLIT": "no"}):
                result = self.play(seed, *words, **mode)
                self.assertEqual((0, 0), (result.code, result.device.get("hazards")), f"{seed} {mode}\n{result.err}")

    def test_a_stream_ordered_free_waits_for_what_its_stream_waits_for(self):
        self.assert_in_order()

    def test_a_stream_ordered_free_waits_for_what_its_stream_waits_for_in_another_context(self):
        self.assert_in_order("peer")

    def test_without_fences_a_stream_ordered_free_is_caught(self):
        for words in ([], ["peer"]):
            codes = {self.play(seed, *words, library=WITHOUT, WITHOUT_RULE="fence").code for seed in SEEDS}
            self.assertIn(HAZARD, codes)


if __name__ == "__main__":
    harness.main()
