"""Programs in which something waits for what is submitted later end under cupool as they do bare, in every mode.

scripts/waits plays the same with as many seeds as one likes.
"""

import os

import harness
import waits
from sanitizer import fewer

SEEDS = int(os.environ.get("CUPOOL_WAITS_SEEDS", "0")) or fewer(4, least=2)
SIZES = ("512", "65536", "1M", "8M", "64M")


class Waits(harness.TestCase):
    """One promise each; a failure names the mode and the seed."""

    def assert_ends(self, *cases, most_seeds=SEEDS):
        seeds = range(1, 1 + (min(SEEDS, most_seeds) if harness.DRIVER == "sim" else 1))
        for case in cases:
            if not waits.modes_of(case):
                self.skipTest(f"{case} hangs bare on a GPU")
            for mode in [None, *waits.modes_of(case)]:
                if mode == "old driver" and harness.DRIVER != "sim":
                    continue
                lacks = ""
                with self.subTest(case=case, mode=mode or "bare"):
                    for seed in seeds:
                        result = waits.play(case, mode, seed, harness.DRIVER)
                        if mode is None and result.code == harness.SKIPPED:
                            lacks = result.out.strip()
                            break
                        how = waits.ENDS.get(result.code, result.code)
                        self.assertEqual("right", how, f"seed {seed}\n{result.out}{result.err}\n"
                                                       f"{waits.repeat_with(case, mode, seed)}")
                if lacks:  # (A skip inside would end that subtest alone.)
                    self.skipTest(lacks)

    def test_new_memory_is_handed_out_while_a_stream_waits(self):
        self.assert_ends(*(f"new-{size}" for size in SIZES))

    def test_work_that_is_older_than_the_first_memory_is_not_waited_for(self):
        self.assert_ends("older-than-memory")

    def test_memory_of_the_waiting_stream_is_used_again_while_it_waits(self):
        self.assert_ends(*(f"reused-waiting-{size}" for size in SIZES))

    def test_memory_of_the_releasing_stream_is_used_again_while_another_waits(self):
        self.assert_ends(*(f"reused-releasing-{size}" for size in SIZES))

    def test_memory_of_both_streams_is_used_again_while_one_waits(self):
        self.assert_ends(*(f"reused-both-{size}" for size in SIZES))

    def test_many_blocks_are_used_again_while_a_stream_waits(self):
        self.assert_ends("reused-many", "turns")

    def test_a_large_allocation_gives_nothing_back_while_a_kernel_waits_for_the_host(self):
        self.assert_ends("large-room")

    def test_a_large_allocation_on_a_full_device_ends_while_a_kernel_waits_for_the_host(self):
        self.assert_ends("large-full", "full-then-large")

    def test_what_the_driver_refuses_is_refused_at_once_while_a_kernel_waits_for_the_host(self):
        self.assert_ends("refused", "refused-reused", "refused-large", "refused-larger", "refused-create")

    def test_memory_that_lies_free_in_pieces_does_not_make_a_refusal_wait(self):
        self.assert_ends("refused-in-pieces", "refused-in-small-pieces")

    def test_the_last_block_of_a_full_device_is_had_again(self):
        self.assert_ends("full-512", "full-100K", "full-2M")

    def test_memory_freed_in_the_order_of_a_stream_is_had_again_while_a_kernel_waits_for_the_host(self):
        self.assert_ends("freed-on-stream", "freed-on-stream-many", "freed-on-stream-beside-graphs")

    def test_memory_that_a_stream_has_yet_to_free_is_refused_at_once(self):
        self.assert_ends("freed-on-stream-refused")

    def test_memory_that_a_stream_of_another_context_frees_is_that_streams_until_then(self):
        self.assert_ends("freed-by-another-context", "freed-by-another-context-often")

    def test_memory_freed_on_one_threads_default_stream_does_not_wait_for_anothers(self):
        self.assert_ends("freed-on-threads-streams")

    def test_memory_that_is_freed_while_a_stream_captures_is_had_in_the_capture(self):
        self.assert_ends("freed-in-capture", "freed-on-stream-in-capture")

    def test_a_thread_without_a_context_frees_memory_while_another_captures(self):
        self.assert_ends("freed-in-capture-elsewhere")

    def test_a_word_of_one_context_is_written_by_another_while_a_kernel_waits_for_it(self):
        self.assert_ends("two-contexts-word")

    def test_a_thread_captures_its_default_stream_in_two_contexts_at_once(self):
        self.assert_ends("two-contexts-captured", "two-contexts-captured-last")

    def test_a_context_whose_end_the_driver_refuses_goes_on_as_before(self):
        self.assert_ends("context-kept")

    def test_freed_memory_is_had_while_a_stream_captures(self):
        self.assert_ends("capture-room")

    def test_growing_does_not_hang_where_the_program_holds_a_lock_that_its_work_needs(self):
        self.assert_ends("growth-under-lock")

    def test_freed_memory_of_one_context_is_had_in_another_while_a_kernel_waits_for_the_host(self):
        self.assert_ends("two-contexts-full")

    def test_a_refusal_in_one_context_stands_in_no_wait_for_another(self):
        self.assert_ends("two-contexts-refused", "two-contexts-refused-captured", "two-contexts-refused-handle",
                         "two-contexts-refused-outside", "two-contexts-refused-reuse")

    def test_destroying_a_busy_stream_waits_for_nothing(self):
        self.assert_ends("destroy", "destroy-reused")

    def test_asking_for_free_memory_waits_for_nothing(self):
        self.assert_ends("mem-get-info")

    def test_managed_memory_is_handed_out_while_a_stream_waits(self):
        self.assert_ends("managed-new", "managed-reused", "managed-reused-small")

    def test_a_host_function_may_wait_for_the_host(self):
        self.assert_ends("host-function", "host-function-reused")

    def test_a_kernel_may_wait_for_the_host(self):
        self.assert_ends("host-kernel", "host-kernel-reused", "host-polls")

    def test_streams_may_wait_for_words_of_each_other(self):
        self.assert_ends("both-ways", "batch", "events", "blocking-stream")

    def test_programmatic_launches_wait_for_nothing_new(self):
        self.assert_ends("programmatic", "programmatic-next")

    def test_captures_and_allocations_in_them_wait_for_nothing(self):
        self.assert_ends("capture-relaxed", "capture-global")

    def test_a_thread_may_release_the_stream_of_another(self):
        self.assert_ends("threads-same", "threads-other")

    def test_a_threads_own_default_stream_may_wait_for_that_of_another(self):
        self.assert_ends("threads-per-thread")

    def test_a_thread_may_release_what_the_free_of_another_waits_for(self):
        self.assert_ends("threads-free", "threads-free-kernel")

    def test_a_launch_that_stands_in_a_full_queue_holds_up_no_other_thread(self):
        self.assert_ends("full-queue", "full-queue-freed", "full-queue-freed-on-stream")

    def test_a_launch_that_stands_in_a_full_queue_holds_up_no_other_context(self):
        # These take their time, which seeds hardly change.
        self.assert_ends("full-queue-contexts", "full-queue-contexts-allocate", "full-queue-contexts-capture",
                         "full-queue-contexts-refused", most_seeds=1)

    def test_a_launch_that_stands_in_a_full_queue_holds_up_no_device_with_peer_access(self):
        self.assert_ends("full-queue-peers", "full-queue-peers-allocate", "full-queue-peers-capture", most_seeds=1)

    def test_two_contexts_of_a_device_wait_for_each_other_as_bare(self):
        self.assert_ends("two-contexts")

    def test_two_devices_wait_for_each_other_as_bare(self):
        self.assert_ends("two-devices")

    def test_two_devices_with_peer_access_wait_for_each_other_as_bare(self):
        self.assert_ends("two-devices-peers")

    def test_a_collective_of_two_contexts_ends_whoever_is_early(self):
        self.assert_ends("collective-contexts-64K", "collective-contexts-24M", "collective-races-contexts-64K",
                         "collective-races-contexts-24M")

    def test_a_collective_of_two_devices_with_peer_access_ends_whoever_is_early(self):
        self.assert_ends("collective-peers-64K", "collective-peers-24M", "collective-races-peers-64K", "collective-races-peers-24M")

    def test_memory_that_was_handed_out_before_peer_access_has_its_old_life_behind_it(self):
        self.assert_ends("peers-late-64K", "peers-late-4M")

    def test_peer_access_in_one_direction_holds_up_neither_device(self):
        self.assert_ends("peers-one-way")

    def test_peer_access_ends_with_its_context(self):
        self.assert_ends("peers-anew")

    def test_who_is_told_that_peer_access_is_there_has_it(self):
        self.assert_ends("peers-twice")

    def test_peer_access_that_is_refused_changes_nothing(self):
        self.assert_ends("peers-refused")
        env = {**waits.settings("lanes", 1), "CUPOOL_STATS": "json"}
        counters, = harness.with_cupool([waits.WAITS, "peers-refused"], env=env).take_counters()
        self.assertEqual(("lanes", "", 0), (counters["mode"], counters["mode_reason"], counters["context_waits"]))

    def test_a_copy_between_contexts_waits_for_nothing_but_the_old_life_of_its_blocks(self):
        self.assert_ends("copies-contexts", "copies-devices")

    def test_a_handle_for_another_process_comes_when_the_old_life_is_over(self):
        self.assert_ends("ipc-4K", "ipc-4M", "ipc-64M", "ipc-written")

    def test_memory_set_for_synchronous_operations_has_its_old_life_behind_it(self):
        self.assert_ends("sync-memops")

    def test_memory_with_peer_tokens_has_its_old_life_behind_it(self):
        self.assert_ends("p2p-tokens")

    def test_memory_given_as_a_dma_buf_has_its_old_life_behind_it(self):
        self.assert_ends("dma-buf")

    def test_managed_memory_has_its_old_life_behind_it_when_the_host_gets_it(self):
        self.assert_ends("managed-touched")

    def test_what_leaves_waits_for_its_old_life_and_for_nothing_newer(self):
        self.assert_ends("ipc-while-waiting", "sync-memops-while-waiting")

    def test_every_case_of_the_victim_is_in_this_file(self):
        with open(__file__, encoding="utf-8") as source:
            text = source.read()
        sized = {f"{kind}-{size}" for kind in ("new", "reused-waiting", "reused-releasing", "reused-both") for size in SIZES}
        self.assertEqual([], [case for case in waits.cases() if case not in sized and f'"{case}"' not in text])


if __name__ == "__main__":
    harness.main()
