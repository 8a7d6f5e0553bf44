"""Memory that no longer fits the device goes to the host's, if the user allows it (CUPOOL_SPILL)."""

import harness
from lab import MIB, drain, fill, play

LIMIT = {"limit": "100M", "spill": "200M"}
SMALL = {"CUPOOL_SIM_MEMORY": str(64 * MIB)}


class SpillTest(harness.TestCase):
    def test_a_program_that_needs_more_than_its_limit_finishes(self):
        for segments in ("driver", "mapped"):
            with self.subTest(segments=segments):
                played = play(*fill(13, 10 * MIB), *[f"m:b{i}:1" for i in range(13)], "s", "c:b12", *drain(13),
                              segments=segments, **LIMIT)
                self.assertEqual("byte 1\n", played.out)
                c = played.counters
                self.assertLessEqual(played.device["peak_bytes"], 100 * MIB)
                self.assertEqual(13, c["allocations"])
                self.assertGreaterEqual(c["spilled_allocations"], 3)
                self.assertEqual(c["spilled_allocations"] * 10 * MIB, c["spilled_bytes"])
                self.assertEqual(0, c["out_of_memory"])
                self.assertGreaterEqual(c["peak_reserved_bytes"], c["peak_live_bytes"])
                self.assertEqual(1, played.err.count("blocks go to host memory now"))

    def test_without_it_or_above_it_memory_runs_out_as_before(self):
        for spill, count in (("0", 0), ("20M", 2)):
            with self.subTest(spill=spill):
                played = play(*fill(14, 10 * MIB), limit="100M", spill=spill)
                self.assertEqual(count, played.counters["spilled_allocations"])
                self.assertEqual(4 - count, played.counters["out_of_memory"])
                self.assertIn(f"a:b13:{10 * MIB} error 2\n", played.out)

    def test_what_spilled_is_used_again_while_the_device_is_full(self):
        played = play(*fill(11, 10 * MIB), "s", "f:b10", f"a:x:{10 * MIB}", "f:x", f"a:y:{10 * MIB}", **LIMIT)
        self.assertEqual("", played.out)
        self.assertEqual(3, played.counters["spilled_allocations"])
        self.assertEqual(10 * MIB, played.device["peak_host_chunk_bytes"])

    def test_device_memory_serves_again_as_soon_as_there_is_some(self):
        played = play(*fill(11, 10 * MIB), "f:b10", "f:b3", f"a:x:{10 * MIB}", **LIMIT)
        self.assertEqual(1, played.counters["spilled_allocations"])

    def test_the_end_of_a_context_gives_the_hosts_memory_back(self):
        played = play(*fill(12, 10 * MIB), "f:b11", "R", f"a:x:{MIB}", **LIMIT)
        self.assertEqual("", played.out)
        self.assertEqual(0, played.device["host_chunk_bytes"])

    def test_the_summary_says_how_much_spilled(self):
        played = play(*fill(12, 10 * MIB), stats="summary", stats_file="", **LIMIT)
        self.assertIn("cupool: 2 allocations of 20 MiB in all went to host memory (CUPOOL_SPILL), because CUPOOL_LIMIT left no "
                      "room; at most 20 MiB of it were taken\n", played.err)
        self.assertIn("peak live 100 MiB, peak reserved 100 MiB on 1 device, 0 B of it idle\n", played.err)
        full = play(*fill(7, 10 * MIB), "f:b6", f"a:x:{10 * MIB}", stats="summary", stats_file="", spill="200M", driver_env=SMALL)
        self.assertIn("cupool: 2 allocations of 20 MiB in all went to host memory (CUPOOL_SPILL), because the device had no room; "
                      "at most 10 MiB of it were taken\n", full.err)

    def test_what_spilled_is_host_memory_in_every_figure(self):
        for settings in ({}, {"segments": "mapped"}, {"split": "no"}):
            with self.subTest(settings=settings):
                played = play(*fill(20, 8 * MIB), "p:live_bytes", "p:host_live_bytes", *drain(20), "p:host_live_bytes", spill="1G", stats_exact="yes", decay_ms=0, driver_env=SMALL, **settings)
                device = played.counters["devices"][0]
                for name in ("live", "asked", "cached", "reserved"):
                    self.assertLessEqual(device[f"peak_{name}_bytes"], 64 * MIB, name)
                self.assertEqual((64 * MIB, 64 * MIB), (device["peak_live_bytes"], device["peak_reserved_bytes"]))
                self.assertEqual([64 * MIB], played.printed("live_bytes"))
                self.assertEqual([96 * MIB, 0], played.printed("host_live_bytes"))
                self.assertEqual(device["host_reserved_bytes"], played.device["host_chunk_bytes"])
                self.assertEqual(96 * MIB, device["peak_host_reserved_bytes"])
                # What happened is counted, wherever it was.
                self.assertEqual((20, 20, 20 * 8 * MIB), (device["allocations"], device["frees"], device["bytes_asked"]))
                self.assertEqual((12, 0), (device["spilled_allocations"], device["spilled_for_limit"]))
                self.assertEqual(20, sum(device["sizes"].values()))
        played = play(*fill(20, 8 * MIB), *drain(20), "T:0", "p:peak_host_reserved_bytes", "r", "p:peak_host_reserved_bytes", spill="1G",
                      driver_env=SMALL)
        self.assertEqual([96 * MIB, 0], played.printed("peak_host_reserved_bytes"))

    def test_a_small_block_may_spill_too(self):
        played = play(*fill(10, 10 * MIB), "a:x:1000", "m:x:1", "s", "c:x", limit="100M", spill="2M")
        self.assertEqual("byte 1\n", played.out)
        self.assertEqual(1, played.counters["spilled_allocations"])

    def test_small_blocks_that_spill_share_host_memory(self):
        played = play(*fill(10, 10 * MIB), *fill(100, 10000, "s"), "m:s0:1", "m:s99:2", "s", "c:s0", "c:s99", *drain(100, "s"), "T:0",
                      limit="100M", spill="2M")
        self.assertEqual("byte 1\nbyte 1\ntrimmed 1000000\n", played.out)
        self.assertEqual(100, played.counters["spilled_allocations"])
        self.assertEqual((2 * MIB, 0), (played.device["peak_host_chunk_bytes"], played.device["host_chunk_bytes"]))


if __name__ == "__main__":
    harness.main()
