"""Every counter counts what its sentence says: a program makes each kind of call a known number of times."""

import json

import harness
from lab import MIB, drain, fill, play

CENSUS = harness.BUILD / "tests" / "report" / "census"

# What tests/report/census.cpp does.
DONE = {
    "pitched_allocations": 2, "managed_allocations": 6, "managed_frees": 6, "async_allocations": 5, "async_frees": 3,
    "mapped_allocations": 1, "array_allocations": 2, "pointer_questions": 7, "forwarded_frees": 1, "failed_frees": 2,
    "failed_allocations": 3, "forwarded_allocations": 0, "synchronisations": 1, "ipc_exports": 2, "ipc_imports": 0,
    "tainted_by_export": 1, "tainted_by_sync_memops": 1, "tainted_by_peer_tokens": 1, "tainted_by_dma_buf": 1,
    "tainted_by_advice": 1, "tainted_by_attachment": 1, "tainted_by_prefetch": 1, "captures": 2, "contexts_ended": 3,
    "unknown_entry_points": 0, "untracked_work": 0, "peer_changes": 0,
}


class CensusTest(harness.TestCase):
    def test_every_kind_of_call_is_counted_as_often_as_it_was_made(self):
        done = harness.with_cupool([CENSUS], env={"CUPOOL_STATS": "json"}, driver="sim")
        self.assertEqual((0, ""), (done.code, done.out))
        counted = done.take_counters()[0]
        self.assertEqual(DONE, {name: counted[name] for name in DONE})
        self.assertGreaterEqual(counted["hooked_by_dlsym"], 2)
        self.assertGreaterEqual(counted["hooked_by_proc_address"], 3)
        # 2 pitched, 1 asked about, 4 tainted, 1 in each created context; all but the last two came back.
        self.assertEqual((9, 7), (counted["devices"][0]["allocations"], counted["blocks_freed"]))
        self.assertEqual(0, counted["live_bytes"])

    def test_after_a_reset_nothing_is_held_and_counting_goes_on(self):
        for options in ({}, {"split": "no"}, {"backend": "native"}):
            played = play(*fill(9, 100000), *fill(3, 30 * MIB, "l"), *drain(4), "p:live_bytes", "R", "p:live_bytes",
                          "p:asked_bytes", "p:reserved_bytes", *fill(2, 5000, "n"), *drain(1, "n"), **options)
            c = played.counters
            with self.subTest(options=options):
                self.assertEqual("", "".join(line for line in played.out.splitlines() if "error" in line))
                self.assertGreater(played.printed("live_bytes")[0], 90 * MIB)
                self.assertEqual([0, 0], [played.printed("live_bytes")[1], played.printed("asked_bytes")[0]])
                self.assertEqual((14, 5), (c["allocations"], c["frees"]))
                self.assertEqual(9 * 100000 + 90 * MIB + 2 * 5000, c["bytes_asked"])
                self.assertEqual((4 * 100000 + 5000, 5000), (c["bytes_freed"], c["asked_bytes"]))
                self.assertEqual(1, c["contexts_ended"])
                self.assertLessEqual(c["peak_live_bytes"], c["peak_reserved_bytes"])
                if "backend" not in options:
                    self.assertEqual(0, played.printed("reserved_bytes")[0])
                    self.assertEqual(played.device["alloc_calls"], c["segments_allocated"])
                    self.assertEqual(played.device["free_calls"], c["segments_released"])
                if not options:
                    self.assertEqual(played.device["current_bytes"], c["reserved_bytes"])
                    self.assertEqual(played.device["peak_bytes"], c["peak_reserved_bytes"])

    def test_after_a_fork_the_parent_agrees_with_the_driver(self):
        played = play(*fill(5, 3 * MIB), "k", *drain(5), "t:4:70000:50", "k", f"a:z:{40 * MIB}")
        c = played.counters
        self.assertEqual((206, 205), (c["allocations"], c["frees"]))
        self.assertEqual(played.device["alloc_calls"], c["segments_allocated"])
        self.assertEqual(played.device["free_calls"], c["segments_released"])
        self.assertEqual(played.device["current_bytes"], c["reserved_bytes"])

    def test_threads_out_of_memory_lose_no_count(self):
        played = play(*fill(7, 500 * MIB), f"t:4:{400 * MIB}:20", oom_reports=0)
        c = played.counters
        self.assertEqual(c["allocations"] - 7, c["frees"])
        self.assertEqual(80, c["frees"] + c["failed_allocations"])
        self.assertEqual(7 * 500 * MIB, c["asked_bytes"])
        self.assertEqual(c["failed_allocations"], c["out_of_memory"])
        self.assertEqual(played.device["alloc_calls"], c["segments_allocated"] + c["driver_refusals"])
        self.assertEqual(played.device["current_bytes"], c["reserved_bytes"])
        self.assertEqual(played.device["peak_bytes"], c["peak_reserved_bytes"])

    def test_a_request_for_more_than_the_device_has_is_told_apart(self):
        for bytes_, too_large in ((6 << 30, 1), (900 * MIB, 0)):
            c = play(*fill(7, 500 * MIB), f"a:y:{bytes_}", oom_reports=0).counters
            self.assertEqual((1, too_large), (c["out_of_memory"], c["too_large"]), bytes_)

    def test_cached_memory_and_its_largest_range_are_true(self):
        c = play(*fill(3, 30 * MIB), *drain(2), stats_exact="yes").counters
        self.assertEqual((30 * MIB, 60 * MIB, 60 * MIB), (c["live_bytes"], c["cached_bytes"], c["peak_cached_bytes"]))
        self.assertEqual(30 * MIB, c["largest_free_range"])

    def test_a_driver_that_refuses_is_asked_again(self):
        for at, refusals in (("2=2", 1), ("2+=2", 3)):
            played = play("a:x:1000", f"a:y:{30 * MIB}", oom_reports=0,
                          driver_env={"CUPOOL_SIM_FAULTS": f"cuMemAlloc_v2@{at}"})
            c = played.counters
            with self.subTest(at=at):
                self.assertEqual((1, refusals), (c["out_of_memory_retries"], c["driver_refusals"]))
                # The simulated driver does not count what it was told to refuse.
                self.assertEqual(played.device["alloc_calls"], c["segments_allocated"])
                self.assertEqual(1 if "+" in at else 0, c["out_of_memory"])
                self.assertEqual(c["out_of_memory"], c["failed_allocations"])

    def test_a_need_for_memory_empties_caches_and_gives_segments_back(self):
        played = play("a:y:1000", "f:y", f"a:x:{60 * MIB}", "f:x", f"a:z:{90 * MIB}", limit="100M")
        c = played.counters
        self.assertEqual("", played.out)
        self.assertGreater(c["thread_caches_emptied"], 0)
        self.assertGreater(c["trims"], 0)
        self.assertEqual(played.device["free_calls"], c["segments_released"])
        self.assertGreater(c["driver_release_ns"], 0)
        self.assertEqual(0, c["out_of_memory"])

    def test_what_a_thread_cannot_keep_is_returned(self):
        self.assertEqual(0, play(*fill(4, 1000), *drain(4)).counters["returns"])
        c = play(*fill(300, 1000), *drain(300)).counters
        self.assertGreater(c["returns"], 0)
        self.assertLessEqual(c["returns"], c["frees"] + 300)

    def test_lane_changes_and_waits_are_counted(self):
        steps = ["a:x:1000"]
        self.assertEqual(0, play(*steps, *["m:x:1"] * 6).counters["lane_changes"])
        self.assertGreater(play(*steps, *["m:x:1", "m:x:2"] * 3).counters["lane_changes"], 0)
        waits = play(*fill(3, 1000), *drain(3), free="sync").counters
        self.assertEqual(3, waits["pool_waits"])
        self.assertGreater(waits["pool_wait_ns"], 0)

    def test_the_native_pools_figures_are_the_drivers(self):
        c = play(*fill(6, 3 * MIB), *drain(4), "s", backend="native").counters
        self.assertEqual((6 * MIB, 18 * MIB), (c["native_used_bytes"], c["native_peak_used_bytes"]))
        # The simulated driver takes memory in steps of 2 MiB, and keeps all of it.
        self.assertEqual((24 * MIB, 24 * MIB), (c["native_reserved_bytes"], c["native_peak_reserved_bytes"]))
        self.assertEqual(c["native_reserved_bytes"], c["reserved_bytes"])

    def test_every_counter_is_named_in_a_test(self):
        text = "".join(path.read_text() for folder in ("report", "loader", "sharing", "aids")
                       for path in (harness.SOURCE / "tests" / folder).glob("*.py"))
        report = json.loads(json.dumps(play("a:x:1").counters))
        names = [name for name, value in report.items() if isinstance(value, int) and name != "pid"]
        self.assertGreater(len(names), 70)
        self.assertEqual([], [name for name in names if f'"{name}"' not in text])


if __name__ == "__main__":
    harness.main()
