"""Memory that is never cut, CUPOOL_SPLIT=0 and managed memory, keeps to the same limits and is counted as truly as any other."""

import harness
from lab import MIB, drain, fill, play


def fill_managed(count, size, name="g"):
    return [f"g:{name}{i}:{size}" for i in range(count)]


class LimitTest(harness.TestCase):
    def test_whole_blocks_keep_to_the_limit(self):
        played = play(f"a:x:{60 * MIB}", f"a:y:{60 * MIB}", f"a:z:{40 * MIB}", split="no", limit="100M", oom_reports=0)
        self.assertEqual(f"a:y:{60 * MIB} error 2", played.out.strip())
        self.assertEqual(100 * MIB, played.device["peak_bytes"])

    def test_what_the_driver_adds_to_whole_blocks_counts_towards_the_limit(self):
        for size in (3_000_000, 1_500_000, 1_048_577, 700_000, 300_000, 70_000):
            with self.subTest(size=size):
                played = play(*fill(1000, size), split="no", limit="64M", oom_reports=0)
                self.assertIn("error 2", played.out)
                self.assertTrue(62 * MIB <= played.device["peak_bytes"] <= 64 * MIB, played.device["peak_bytes"])

    def test_idle_whole_blocks_go_back_before_the_limit_refuses_and_no_more_than_must(self):
        played = play(*fill(4, 20 * MIB), *drain(3), f"a:z:{30 * MIB}", split="no", limit="100M")
        self.assertEqual(("", ""), (played.out, played.err))
        self.assertEqual((90 * MIB, 1), (played.device["current_bytes"], played.counters["segments_released"]))

    def test_more_than_the_limit_costs_nobody_an_idle_block(self):
        played = play(f"a:x:{60 * MIB}", "f:x", f"a:y:{101 * MIB}", split="no", limit="100M", oom_reports=0)
        self.assertIn("error 2", played.out)
        self.assertEqual(60 * MIB, played.counters["cached_bytes"])

    def test_contexts_share_the_limit_of_their_device(self):
        played = play(f"a:x:{60 * MIB}", "C", f"a:y:{60 * MIB}", split="no", limit="100M", oom_reports=0)
        self.assertIn("error 2", played.out)

    def test_managed_memory_does_not_count_towards_the_limit(self):
        for split in ("no", "yes"):
            played = play(f"g:x:{90 * MIB}", f"a:y:{90 * MIB}", f"g:z:{90 * MIB}", split=split, limit="100M")
            self.assertEqual(("", ""), (played.out, played.err), split)


class CachedTest(harness.TestCase):
    def test_whole_blocks_above_the_threshold_go_back_when_they_are_freed(self):
        played = play(*fill(6, 10 * MIB), *drain(6), split="no", max_cached="25M")
        self.assertEqual((20 * MIB, 4), (played.counters["cached_bytes"], played.counters["segments_released"]))
        self.assertEqual(20 * MIB, played.device["current_bytes"])
        self.assertEqual(4, played.counters["trims"])

    def test_managed_blocks_above_the_threshold_go_back_when_they_are_freed(self):
        played = play(*fill_managed(6, 10 * MIB), *drain(6, "g"), max_cached="25M")
        self.assertEqual(20 * MIB, played.device["current_bytes"])

    def test_the_oldest_idle_block_goes_first(self):
        played = play(*fill(3, 10 * MIB), *drain(2), f"a:o:{24 * MIB}", "f:o", "f:b2", f"a:p:{24 * MIB}", split="no",
                      max_cached="40M")
        self.assertEqual(1, played.counters["range_hits"])

    def test_trimming_reaches_whole_and_managed_blocks(self):
        steps = [*fill(3, 10 * MIB), *fill_managed(3, 10 * MIB), *drain(3), *drain(3, "g")]
        played = play(*steps, f"T:{20 * MIB}", "T:0", split="no")
        self.assertEqual([20 * MIB, 40 * MIB], played.printed("trimmed"))
        self.assertEqual(0, played.device["current_bytes"])

    def test_a_threshold_set_by_the_program_holds_for_whole_and_managed_blocks(self):
        for early in (True, False):
            steps = [*fill(3, 10 * MIB), *fill_managed(3, 10 * MIB)]
            steps.insert(0 if early else len(steps), f"M:{15 * MIB}")
            played = play(*steps, *drain(3), *drain(3, "g"), split="no")
            self.assertEqual(20 * MIB, played.device["current_bytes"], early)

    def test_blocks_that_are_idle_for_long_go_back_at_a_quiet_moment(self):
        steps = [*fill(3, 10 * MIB), *fill_managed(2, 10 * MIB), "f:b0", "f:b1", "f:g0"]
        # (Cupool's own thread may just be at it, and without a processor.)
        decayed = play(*steps, *["n:12", "s"] * 20, split="no", decay_ms=8)
        self.assertEqual((20 * MIB, 2), (decayed.device["current_bytes"], decayed.counters["decays"]))
        early = play(*steps, "s", split="no", decay_ms=80000)
        self.assertEqual((50 * MIB, 0), (early.device["current_bytes"], early.counters["decays"]))


class ShortageTest(harness.TestCase):
    def test_a_failed_whole_allocation_is_explained_once_with_its_figures(self):
        played = play(*fill(7, 500 * MIB), f"a:z:{1500 * MIB}", f"a:z:{1500 * MIB}", split="no")
        self.assertEqual((2, 2), (played.out.count("error 2"), played.counters["out_of_memory"]))
        self.assertEqual(1, played.err.count("the device has 596 MiB free of 4 GiB"),
                         played.err)
        self.assertRegex(played.err, r"reserved 3\.4 GiB: live 3\.4 GiB, idle 0 B")
        self.assertNotIn("not given back", played.err)
        self.assertRegex(played.err, r"(?m)^cupool:   512 MiB +7 +3\.4 GiB")
        self.assertNotIn("CUPOOL_LIMIT", played.err)

    def test_the_limit_is_named_when_it_refused_a_whole_block(self):
        played = play(f"a:x:{90 * MIB}", f"a:y:{90 * MIB}", split="no", limit="100M")
        self.assertIn("CUPOOL_LIMIT is 100 MiB", played.err)
        self.assertEqual(1, played.counters["out_of_memory"])

    def test_a_failed_managed_allocation_is_explained_once(self):
        for split in ("yes", "no"):
            played = play(f"g:x:{3000 * MIB}", f"g:y:{3000 * MIB}", split=split)
            self.assertEqual((1, 1), (played.out.count("error 2"), played.counters["out_of_memory"]))
            self.assertEqual(1, played.err.count("out of memory on device 0: 2.9 GiB of managed memory asked"), played.err)
            self.assertRegex(played.err, r"reserved 2\.9 GiB: live 2\.9 GiB")

    def test_nothing_is_said_where_another_kind_of_memory_made_room(self):
        played = play(f"a:x:{3000 * MIB}", "f:x", f"g:y:{3000 * MIB}", "f:y", f"a:z:{3000 * MIB}")
        self.assertEqual(("", "", 0), (played.out, played.err, played.counters["out_of_memory"]))

    def test_more_than_the_device_ever_had_is_no_shortage_of_whole_blocks(self):
        played = play(f"a:x:{MIB}", "f:x", f"a:x:{1 << 40}", f"a:x:{1 << 50}", split="no")
        self.assertEqual((2, ""), (played.out.count("error 2"), played.err))
        self.assertEqual(MIB, played.counters["cached_bytes"])


class AccountTest(harness.TestCase):
    def assert_account(self, played):
        """The simulated driver saw exactly the calls and bytes that cupool says it made."""
        c, device = played.counters, played.device
        self.assertEqual(device["alloc_calls"], c["segments_allocated"] + c["driver_refusals"])
        self.assertEqual(device["free_calls"], c["segments_released"])
        self.assertEqual(device["current_bytes"], c["reserved_bytes"])
        self.assertEqual(c["cached_bytes"], c["reserved_bytes"] - c["live_bytes"])
        kinds = sum(c[k] for k in ("thread_hits", "range_hits", "hits_after_wait", "misses"))
        self.assertEqual((c["allocations"], 0), (kinds + c["forwarded_allocations"], c["thread_hits"]))

    def test_one_thread_is_counted_truly(self):
        played = play(*fill(8, 4 * MIB), *drain(6), *fill(3, 4 * MIB, "c"), *fill(2, 6 * MIB, "d"), split="no",
                      stats_exact="yes")
        c = played.counters
        self.assert_account(played)
        self.assertEqual((13, 6, 3, 10), (c["allocations"], c["frees"], c["range_hits"], c["misses"]))
        self.assertEqual((32 * MIB, 24 * MIB), (c["peak_live_bytes"], c["peak_cached_bytes"]))
        self.assertEqual(played.device["peak_bytes"], c["peak_reserved_bytes"])
        self.assertEqual(4 * MIB, c["largest_free_range"])

    def test_threads_are_counted_truly(self):
        for steps in (["t:4:4194304:200"], ["h:4:2097152:20"] * 2, ["t:4:4194304:50", "h:3:4194304:9"]):
            played = play(*steps, split="no", max_cached="10M")
            self.assert_account(played)
            self.assertEqual(played.counters["allocations"], played.counters["frees"])
            self.assertEqual(0, played.counters["live_bytes"])

    def test_a_parent_is_counted_truly_after_a_fork(self):
        played = play(*fill(3, 4 * MIB), "f:b0", "k", "a:x:4194304", "f:b1", "T:0", split="no")
        self.assert_account(played)
        self.assertEqual((4, 2, 8 * MIB), tuple(played.counters[k] for k in ("allocations", "frees", "live_bytes")))

    def test_a_reset_leaves_nothing_reserved(self):
        played = play(*fill(3, 4 * MIB), "f:b0", "R", "p:reserved_bytes", *fill(2, 4 * MIB, "c"), "f:c0", split="no")
        self.assert_account(played)
        self.assertEqual([0], played.printed("reserved_bytes"))
        self.assertEqual((4 * MIB, 4 * MIB), (played.counters["live_bytes"], played.counters["cached_bytes"]))

    def test_running_out_of_memory_is_counted_truly(self):
        alone = play(*fill(9, 500 * MIB), *drain(4), f"a:z:{1400 * MIB}", f"a:y:{3000 * MIB}", split="no", oom_reports=0)
        self.assertGreater(alone.counters["driver_refusals"], 2)
        together = play(*fill(7, 500 * MIB), f"t:4:{400 * MIB}:20", split="no", oom_reports=0)
        for played in (alone, together):
            self.assert_account(played)
            self.assertEqual(played.counters["failed_allocations"], played.counters["out_of_memory"])

    def test_blocks_that_had_to_be_waited_for_are_counted_as_that(self):
        steps = []
        for i in range(30):
            steps += [f"a:n{i}:4194304", f"m:n{i}:{i % 3 + 1}", f"f:n{i}"]
        played = play(*steps, split="no", streams="fences", many_budget=0)
        self.assert_account(played)
        self.assertGreater(played.counters["hits_after_wait"], 0)

    def test_a_primary_context_that_the_driver_will_not_destroy_keeps_its_blocks(self):
        for split in ("yes", "no"):
            played = play("a:x:4194304", "a:y:4194304", "f:x", "D", "T:0", "f:y", "T:0", split=split)
            self.assertIn("D error 201", played.out)
            self.assertEqual(0, played.device["current_bytes"], split)
            self.assertEqual(0, played.counters["forwarded_frees"])


if __name__ == "__main__":
    harness.main()
