"""A context that has failed ends with the error of its work, and takes all of its memory along all the same."""

import harness
from lab import MIB, drain, fill, play

DESTROYED = {"CUPOOL_SIM_FAULTS": "cuCtxDestroy_v2@1=+700"}
# The driver tells of the error wherever it is asked about the context.
RESET = {"CUPOOL_SIM_FAULTS": "cuCtxSynchronize@1=700,cuDevicePrimaryCtxRetain@2=700,cuDevicePrimaryCtxReset_v2@1=+700"}
OVERFULL = {"limit": "100M", "spill": "100M"}


class EndingsTest(harness.TestCase):
    def assert_nothing_left(self, played):
        self.assertEqual((0, 0), (played.device["current_bytes"], played.device["host_chunk_bytes"]), played.err)
        self.assertEqual((0, 0), (played.counters["live_bytes"], played.counters["reserved_bytes"]))

    def test_a_destroyed_context_that_tells_of_an_earlier_error_leaves_no_mapped_memory(self):
        for failed in ((), ("s",)):
            with self.subTest(failed=failed):
                faults = {"CUPOOL_SIM_FAULTS": DESTROYED["CUPOOL_SIM_FAULTS"] + (",cuCtxSynchronize@1=700" if failed else "")}
                played = play("C", *fill(12, 10 * MIB), "f:b2", *failed, "D", driver_env=faults, segments="mapped", **OVERFULL)
                self.assertIn("D error 700\n", played.out)
                self.assert_nothing_left(played)
                self.assertEqual(1, played.counters["contexts_ended"])

    def test_the_next_context_with_the_same_handle_is_served(self):
        played = play("C", *fill(3, MIB), "D", "C", *fill(3, MIB), *drain(3), "T:0", driver_env=DESTROYED, segments="mapped")
        self.assertEqual("D error 700\ntrimmed 4194304\n", played.out)
        self.assertEqual(6, played.counters["allocations"])

    def test_a_reset_context_that_tells_of_an_earlier_error_leaves_no_mapped_memory(self):
        played = play(*fill(12, 10 * MIB), "s", "R", driver_env=RESET, segments="mapped", **OVERFULL)
        self.assertIn("R error 700\n", played.out)
        self.assert_nothing_left(played)

    def test_a_context_that_the_driver_refuses_to_destroy_keeps_its_memory(self):
        for code in (1, 3, 4, 201, 800):
            with self.subTest(code=code):
                played = play("C", f"a:x:{10 * MIB}", "D", "m:x:1", "s", "c:x", segments="mapped",
                              driver_env={"CUPOOL_SIM_FAULTS": f"cuCtxDestroy_v2@1={code}"})
                self.assertEqual(f"D error {code}\nbyte 1\n", played.out)


if __name__ == "__main__":
    harness.main()
