"""A few hundred runs of the torture victim; scripts/seeds runs as many more as one likes."""

import harness
import runs
from sanitizer import fewer

SCENE_SEEDS = 12
# A rule that is left out shows in 11 seeds of 12 or more, but in less than half where two threads have to meet.
SILENT_SEEDS = 4
MEETING_SEEDS = 24


class Seeds(harness.TestCase):
    """The oracle's word on the pool, and on the pool with one rule left out."""

    def expect_none(self, jobs):
        """Every run ends with 0."""
        found = runs.findings(jobs, enough=5)
        self.assertFalse(found, "\n".join(map(str, found)))

    def expect_caught(self, jobs, codes=(runs.HAZARD,)):
        """Some run ends with one of these: the rule that is left out is needed, and its absence is seen."""
        seen = []
        for job in jobs:
            code, _ = runs.run_job(job)
            if code in codes:
                return
            seen.append(code)
        self.fail(f"the oracle found nothing; exit codes {seen}")

    def test_the_torture_victim_is_a_valid_program(self):
        self.expect_none(runs.bare_jobs(0, fewer(46)))

    def test_the_torture_victim_on_two_devices_is_a_valid_program(self):
        self.expect_none(runs.bare_jobs(0, fewer(2 * len(runs.PEER_SETS)), runs.PEER_SETS))

    def test_the_oracle_stays_silent_over_one_run_of_each_set(self):
        self.expect_none(runs.seeded_jobs(0, len(runs.SETS)))

    def test_the_oracle_stays_silent_over_more_seeded_runs(self):
        self.expect_none(runs.seeded_jobs(len(runs.SETS), fewer(2 * len(runs.SETS))))

    def test_memory_stays_right_whichever_driver_call_fails(self):
        self.expect_none(runs.fault_jobs(0, fewer(224, least=2 * len(runs.FAULTS))))

    def test_the_oracle_stays_silent_where_each_rule_matters(self):
        for scene in ("streams", "destroyed", "waited", "older", "threads", "wait", "ordered", "others", "moved", "given_back",
                      "unused", "graphs", "peers"):
            self.expect_none(runs.scene_jobs(scene, fewer(MEETING_SEEDS if scene == "wait" else SILENT_SEEDS), ""))

    def test_seeded_runs_without_the_fence_are_caught(self):
        self.expect_caught(runs.without(runs.seeded_jobs(0, 23), "fence"))

    def test_seeded_runs_without_notes_are_caught(self):
        self.expect_caught(runs.without(runs.seeded_jobs(0, 23), "note"))

    def test_seeded_runs_whose_streams_do_not_wait_for_what_was_leant_on_are_caught(self):
        self.expect_caught(runs.without(runs.seeded_jobs(0, 92), "lean"))

    def test_a_wait_that_is_skipped_by_one_epochs_lanes_is_caught(self):
        self.expect_caught(runs.scene_jobs("older", SCENE_SEEDS, "all_lanes"))

    def test_leaning_on_a_stream_ordered_free_is_an_added_wait(self):
        self.expect_caught(runs.scene_jobs("ordered", SCENE_SEEDS, "seal_in_free"), runs.ADDED_WAITS)

    def test_a_programmatic_launch_that_keeps_its_permission_is_caught(self):
        self.expect_caught(runs.scene_jobs("programmatic-next", SCENE_SEEDS, "drop_overlap", program="waits"))

    def test_memory_that_leaves_before_its_old_work_is_over_is_wrong(self):
        self.expect_caught(runs.scene_jobs("ipc-4M", SCENE_SEEDS, "exports", program="waits"), (1, runs.HAZARD))

    def test_without_the_fence_a_reuse_on_another_stream_is_caught(self):
        self.expect_caught(runs.scene_jobs("streams", SCENE_SEEDS, "fence"))

    def test_without_the_wait_a_reuse_on_another_stream_is_caught(self):
        self.expect_caught(runs.scene_jobs("streams", SCENE_SEEDS, "lean"))

    def test_without_notes_a_reuse_on_another_stream_is_caught(self):
        self.expect_caught(runs.scene_jobs("streams", SCENE_SEEDS, "note"))

    def test_without_the_number_going_up_first_a_wait_under_way_is_caught(self):
        self.expect_caught(runs.scene_jobs("wait", MEETING_SEEDS, "number_first"))

    def test_without_a_new_name_at_destruction_a_handle_that_comes_back_is_caught(self):
        self.expect_caught(runs.scene_jobs("destroyed", SCENE_SEEDS, "rename"))

    def test_without_forgetting_its_waits_at_destruction_a_handle_that_comes_back_is_caught(self):
        self.expect_caught(runs.scene_jobs("waited", SCENE_SEEDS, "drop_waited"))

    def test_a_block_of_two_streams_taken_for_one_streams_own_is_caught(self):
        self.expect_caught(runs.scene_jobs("both", SCENE_SEEDS, "turn"))

    def test_a_block_of_a_destroyed_streams_own_given_to_its_handles_next_is_caught(self):
        self.expect_caught(runs.scene_jobs("renamed", SCENE_SEEDS, "drop_name"))

    def test_memory_that_moved_and_forgot_its_old_work_is_caught(self):
        self.expect_caught(runs.scene_jobs("moved", SCENE_SEEDS, "moves"))

    def test_a_place_that_is_unmapped_when_its_chunk_has_moved_is_caught(self):
        self.expect_caught(runs.scene_jobs("moved", SCENE_SEEDS, "vacated"))

    def test_a_segment_that_goes_back_before_its_old_work_is_over_is_caught(self):
        self.expect_caught(runs.scene_jobs("given_back", SCENE_SEEDS, "done_goes"))

    def test_a_free_in_the_order_of_a_stream_that_forgets_the_blocks_former_life_is_caught(self):
        self.expect_caught(runs.scene_jobs("unused", SCENE_SEEDS, "former"))

    def test_a_wait_made_while_another_thread_launches_a_graph_there_is_caught(self):
        self.expect_caught(runs.scene_jobs("graphs", SCENE_SEEDS, "graphs_apart"))

    def test_memory_that_another_device_may_access_given_before_its_old_work_is_done_is_caught(self):
        self.expect_caught(runs.scene_jobs("peers", SCENE_SEEDS, "peers_done"))

    def test_seeded_runs_of_two_devices_without_waiting_for_the_old_work_of_shared_memory_are_caught(self):
        self.expect_caught(runs.without(runs.seeded_jobs(0, 22, ["peers"]), "peers_done"))

    def test_without_a_lane_for_each_thread_two_default_streams_are_caught(self):
        self.expect_caught(runs.scene_jobs("threads", SCENE_SEEDS, "thread_lanes"))


if __name__ == "__main__":
    harness.main()
