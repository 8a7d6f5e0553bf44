"""The simulated driver answers as the real one was seen to."""

import harness

FACTS = harness.BUILD / "tests" / "oracle" / "facts"


class FactsTest(harness.TestCase):
    def assert_true(self, chapter, seeds=5, **settings):
        for seed in range(1, seeds + 1):
            result = harness.run([FACTS, chapter], env={"CUPOOL_SIM_SEED": str(seed), **settings}, driver=harness.DRIVER)
            self.assertEqual((0, ""), (result.code, result.out), f"seed {seed}\n{result.err}")

    def test_allocation_answers_as_the_real_driver(self):
        self.assert_true("answers")

    def test_only_a_free_waits_for_the_device(self):
        self.assert_true("blocking")

    def test_a_context_event_covers_every_stream_and_a_context_wait_every_later_one(self):
        self.assert_true("order")

    def test_a_context_event_covers_streams_that_are_gone_and_all_that_an_older_one_covers(self):
        self.assert_true("gone")

    def test_the_legacy_stream_orders_with_blocking_streams_and_with_no_others(self):
        self.assert_true("streams", seeds=8)

    def test_capture_refuses_and_invalidates_by_the_table(self):
        self.assert_true("capture", seeds=2)

    def test_a_free_waits_for_the_context_that_owns_the_memory_and_for_no_other(self):
        self.assert_true("owners", seeds=2)

    def test_a_launch_that_stands_in_a_full_queue_holds_up_no_other_stream_and_no_other_context(self):
        self.assert_true("full_queue", seeds=1)

    def test_a_free_in_stream_order_waits_for_its_stream_alone(self):
        self.assert_true("ordered_free", seeds=2)

    def test_calls_about_a_context_end_its_captures_and_other_calls_only_global_ones(self):
        self.assert_true("capture_threads", seeds=1)

    def test_a_copy_between_contexts_is_ordered_with_their_blocking_streams_alone(self):
        self.assert_true("peer_copies", seeds=2)

    def test_a_programmatic_launch_jumps_over_waits_that_lead_back_to_its_stream(self):
        self.assert_true("programmatic", seeds=1)

    def test_a_green_context_is_a_part_of_the_primary_one(self):
        self.assert_true("green", seeds=2)

    def test_a_reset_context_takes_its_memory_along_and_a_forked_child_has_no_driver(self):
        self.assert_true("contexts", seeds=2)

    def test_entry_points_come_by_name_version_and_stream_kind(self):
        self.assert_true("proc_address", seeds=1)

    def test_memory_is_shared_between_processes_and_handles_look_like_the_real_ones(self):
        self.need_native()
        self.assert_true("ipc", seeds=2)

    def test_mapped_memory_answers_as_the_real_driver(self):
        self.assert_true("mapped")

    def test_calls_for_mapped_memory_refuse_what_does_not_fit(self):
        self.assert_true("mapped_refusals", seeds=1)

    def test_access_to_mapped_memory_is_given_to_each_device_by_itself(self):
        self.assert_true("mapped_access", seeds=2, CUPOOL_SIM_DEVICES="2")

    def test_a_chunk_in_host_memory_is_used_by_the_device_and_takes_none_of_its_memory(self):
        self.assert_true("mapped_host", seeds=2)

    def test_a_chunk_at_two_places_is_one_memory_and_is_mapped_there_without_a_wait(self):
        self.assert_true("mapped_twice")

    def test_mapped_memory_outlives_every_context(self):
        self.assert_true("mapped_contexts", seeds=2)

    def test_a_chunk_is_shared_between_processes_as_a_descriptor(self):
        self.need_native()
        self.assert_true("mapped_sharing", seeds=2)

    def test_mapped_memory_without_access_is_an_illegal_address(self):
        for chapter in ("no_access", "no_access_copy", "read_only"):
            self.assert_true(chapter, seeds=2)

    def test_an_illegal_address_breaks_the_context_for_good(self):
        self.assert_true("illegal")


if __name__ == "__main__":
    harness.main()
