"""Managed memory before the oracle: the host never touches a block while work of its old life is under way."""

import os

import harness
from sanitizer import fewer

SEEDS = fewer(int(os.environ.get("CUPOOL_ORACLE_SEEDS", "100")) // 4)
OBSERVER = harness.BUILD / "sim" / "libcupool_observer.so"
PROGRAM = harness.BUILD / "tests" / "oracle" / "oracle_program"


class ManagedTest(harness.TestCase):
    def assert_never_accused(self, threads=1, **env):
        for seed in range(1, SEEDS + 1):
            result = harness.run([PROGRAM, seed, 120, threads, "managed"], preload=[OBSERVER, harness.LIBRARY],
                                 env={"CUPOOL_SIM_SEED": str(seed), "CUPOOL_STATS": "off", **env}, driver="sim")
            self.assertEqual((0, 0), (result.code, result.device.get("hazards")), f"seed {seed}\n{result.err}")

    def test_managed_memory_of_the_pool_is_never_accused(self):
        self.assert_never_accused()

    def test_managed_memory_of_the_pool_with_threads_is_never_accused(self):
        self.assert_never_accused(threads=3)

    def test_managed_memory_past_the_pool_is_never_accused(self):
        self.assert_never_accused(CUPOOL_MANAGED="0")

    def test_memory_that_is_filled_is_never_accused(self):
        self.assert_never_accused(CUPOOL_FILL="alloc:0xA5,free:0x5A")


if __name__ == "__main__":
    harness.main()
