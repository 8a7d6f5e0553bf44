"""Memory shared between processes: whoever has cupool opens the block it was offered, nobody ever sees other data."""

import json
import os

import harness

SHARE = harness.BUILD / "tests" / "sharing" / "share"
BLOCKS = 39


class SharingTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()

    def share(self, *words, env=None, bare=False):
        quiet = {"CUPOOL_STATS": "json", **(env or {})}
        result = harness.run([SHARE, *words]) if bare else harness.with_cupool([SHARE, *words], env=quiet)
        self.assertEqual(0, result.code, result.out + result.err)
        return result.tally("share"), result

    def test_two_processes_without_cupool_share_every_block(self):
        self.assertEqual(BLOCKS, self.share(bare=True)[0]["opened"])

    def test_two_processes_with_cupool_share_every_block(self):
        tally, result = self.share()
        self.assertEqual((BLOCKS, 0, 0), (tally["opened"], tally["refused"], tally["wrong"]))
        exporter = max(result.take_counters(), key=lambda counters: json.dumps(counters).count("ipc_exports"))
        self.assertIn("sealed_handles", json.dumps(exporter))

    def test_two_processes_share_every_block_with_fences_alone(self):
        self.assertEqual(BLOCKS, self.share(env={"CUPOOL_STREAMS": "fences"})[0]["opened"])

    def test_a_process_without_cupool_is_refused_a_cut_block_and_opens_a_whole_one(self):
        tally, _ = self.share("bare")
        self.assertEqual(BLOCKS, tally["opened"] + tally["refused"])
        self.assertGreater(tally["opened"], 0)
        self.assertGreater(tally["refused"], 0)
        self.assertEqual(0, tally["wrong"])

    def test_a_process_with_cupool_switched_off_opens_every_block(self):
        self.assertEqual(BLOCKS, self.share("off")[0]["opened"])

    def test_without_cutting_every_block_is_open_to_anyone(self):
        tally, _ = self.share("bare", env={"CUPOOL_SPLIT": "0"})
        self.assertEqual((BLOCKS, 0, 0), (tally["opened"], tally["refused"], tally["wrong"]))

    def test_an_altered_handle_opens_its_block_or_nothing(self):
        count = os.environ.get("CUPOOL_TEST_ALTERATIONS", "10000" if harness.DRIVER == "gpu" else "20000")
        done = harness.with_cupool([harness.BUILD / "tests" / "sharing" / "alter", count])
        tally = done.tally("alter")
        self.assertEqual((0, 0, 0), (done.code, tally["opened"], tally["wrong"]), done.out + done.err)
        self.assertGreater(tally["tried"], int(count) // 2)

    def test_switched_off_every_block_is_open_to_anyone(self):
        self.assertEqual(BLOCKS, self.share("bare", env={"CUPOOL_BACKEND": "off"})[0]["opened"])


if __name__ == "__main__":
    harness.main()
