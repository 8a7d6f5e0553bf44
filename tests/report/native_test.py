"""The driver's own stream-ordered pool behind cupool: served first, as a last resort, or not at all where it is missing."""

import harness
from lab import MIB, drain, fill, play


class NativeTest(harness.TestCase):
    def test_the_native_pool_serves_every_allocation(self):
        played = play(*fill(10, 100000), *drain(5))
        played = play(*fill(10, 100000), *drain(5), backend="native")
        c = played.counters
        self.assertEqual((10, 5), (c["native_allocations"], c["native_frees"]))
        self.assertEqual((10, 5, 0), (c["allocations"], c["frees"], c["segments_allocated"]))
        self.assertEqual(500000, c["native_used_bytes"])
        self.assertEqual(1000000, c["native_peak_used_bytes"])
        self.assertEqual(500000, c["asked_bytes"])

    def test_high_marks_of_the_native_pool_can_be_reset(self):
        played = play(*fill(10, 100000), *drain(9), "s", "r", "p:native_peak_used_bytes", backend="native")
        self.assertLess(played.printed("native_peak_used_bytes")[0], 1000000)

    def test_frees_never_wait_and_work_is_ordered_by_context_events(self):
        steps = []
        for i in range(40):
            steps += [f"a:n{i}:50000", f"m:n{i}:{i % 3 + 1}", f"f:n{i}"]
        played = play(*steps, backend="native")
        self.assertEqual(0, played.code, played.err)
        self.assertEqual(40, played.device["context_records"])
        self.assertEqual(40, played.device["context_waits"])

    def test_a_driver_without_the_entry_points_is_told_and_the_caching_pool_serves(self):
        played = play(*fill(3, 1000), backend="native", driver_env={"CUPOOL_SIM_DRIVER_VERSION": "12040"})
        self.assertEqual(1, played.err.count("the caching pool serves"), played.err)
        self.assertEqual((3, 0), (played.counters["allocations"], played.counters["native_allocations"]))
        self.assertEqual("lanes", played.counters["mode"])

    def test_the_native_pool_is_the_last_resort_where_asked(self):
        faults = {"CUPOOL_SIM_FAULTS": "cuMemAlloc_v2@2+=2"}
        steps = ["a:x:1000", f"a:y:{60 * MIB}", "f:y"]
        without = play(*steps, driver_env=faults)
        self.assertIn(f"a:y:{60 * MIB} error 2", without.out)
        played = play(*steps, fallback="native", driver_env=faults)
        self.assertEqual(("", ""), (played.out, played.err))
        self.assertEqual((1, 1), (played.counters["fallback_allocations"], played.counters["native_frees"]))

    def test_the_last_resort_keeps_to_the_limit(self):
        played = play(f"a:x:{90 * MIB}", f"a:y:{90 * MIB}", limit="100M", fallback="native")
        self.assertIn(f"a:y:{90 * MIB} error 2", played.out)
        self.assertEqual(0, played.counters["native_allocations"])

    def test_the_native_pool_runs_out_with_a_report(self):
        played = play(*fill(9, 450 * MIB), f"a:z:{450 * MIB}", backend="native")
        self.assertIn("out of memory on device 0: 450 MiB asked", played.err)
        self.assertIn("error 2", played.out)


if __name__ == "__main__":
    harness.main()
