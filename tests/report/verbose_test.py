"""CUPOOL_LOG=verbose: one line for each segment that comes and goes, each refusal, and each change of the mode."""

import re

import harness
from lab import MIB, drain, fill, play

TOOK = re.compile(r"^cupool: script\[\d+\]: device 0: took (\d+) MiB from the driver in [\d.]+ ms; (\d+) MiB reserved$", re.MULTILINE)
GAVE = re.compile(r"^cupool: script\[\d+\]: device 0: gave (\d+) MiB back to the driver in [\d.]+ ms; (\d+) (?:MiB|B) reserved$", re.MULTILINE)


class VerboseTest(harness.TestCase):
    def test_each_segment_that_comes_and_goes_is_a_line(self):
        for settings in ({}, {"split": "no"}, {"segments": "mapped"}):
            with self.subTest(settings=settings):
                played = play(*fill(5, 30 * MIB), *drain(5), "T:0", log="verbose", **settings)
                c = played.counters
                took, gave = TOOK.findall(played.err), GAVE.findall(played.err)
                self.assertEqual((c["segments_allocated"], c["segments_released"]), (len(took), len(gave)), played.err)
                self.assertEqual((150, 150), (sum(int(one) for one, _ in took), sum(int(one) for one, _ in gave)))
                self.assertEqual(("150", "0"), (took[-1][1], gave[-1][1]))

    def test_each_refusal_is_a_line(self):
        played = play(*fill(2, 60 * MIB), log="verbose", limit="100M", oom_reports=0)
        self.assertRegex(played.err, r"(?m)^cupool: script\[\d+\]: device 0: 60 MiB more would exceed CUPOOL_LIMIT, 100 MiB; 60 MiB reserved$")
        full = play(*fill(2, 60 * MIB), log="verbose", oom_reports=0, driver_env={"CUPOOL_SIM_MEMORY": str(64 * MIB)})
        refused = re.findall(r"(?m)^cupool: script\[\d+\]: device 0: the driver refused 60 MiB \(its error 2\); 60 MiB reserved$", full.err)
        self.assertGreater(len(refused), 0, full.err)
        self.assertEqual(full.counters["driver_refusals"], len(refused), full.err)

    def test_managed_memory_and_the_native_pool_have_their_lines(self):
        played = play(f"g:x:{4 * MIB}", "f:x", "T:0", log="verbose")
        for said in ("taken from", "given back to"):
            self.assertRegex(played.err, rf"(?m)^cupool: script\[\d+\]: device 0: 4 MiB of managed memory {said} the driver$")
        played = play(*fill(2, 60 * MIB), log="verbose", limit="100M", backend="native", oom_reports=0)
        self.assertRegex(played.err, r"(?m)^cupool: script\[\d+\]: device 0: the native pool, or a limit on it, refused 60 MiB \(error 2\)$")

    def test_host_memory_that_is_taken_and_given_back_is_a_line(self):
        played = play(*fill(7, 10 * MIB), *drain(7), "T:0", log="verbose", spill="1G", driver_env={"CUPOOL_SIM_MEMORY": str(64 * MIB)})
        for said in (r"device 0: 10 MiB of host memory taken for blocks that spill; 10 MiB in all", r"device 0: 10 MiB of host memory given back; 0 B in all"):
            self.assertRegex(played.err, rf"(?m)^cupool: script\[\d+\]: {said}$")

    def test_the_mode_and_each_change_of_it_is_a_line(self):
        played = play("a:x:1000", log="verbose")
        self.assertRegex(played.err, r"(?m)^cupool: script\[\d+\]: this process uses CUDA: mode lanes$")
        for mode, how in (("fences", "in the order of whole contexts"), ("exact", "only when its work is done")):
            played = play("a:x:1000", log="verbose", streams=mode)
            self.assertRegex(played.err, rf"(?m)^cupool: script\[\d+\]: mode {mode} from now on, memory is reused {how}: CUPOOL_STREAMS={mode}$")
            self.assertIn(f"this process uses CUDA: mode {mode}, CUPOOL_STREAMS={mode}\n", played.err)

    def test_each_detail_names_the_rank(self):
        played = play("a:x:1000", log="verbose", driver_env={"OMPI_COMM_WORLD_RANK": "7"})
        lines = played.err.splitlines()
        self.assertGreater(len(lines), 1)
        for line in lines:
            self.assertRegex(line, r"^cupool: script\[\d+\] rank 7: ")

    def test_without_it_none_of_these_lines_is_printed(self):
        self.assertEqual("", play(*fill(5, 30 * MIB), *drain(5), "T:0").err)


if __name__ == "__main__":
    harness.main()
