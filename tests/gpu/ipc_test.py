"""On a GPU: memory shared between processes by the frameworks arrives whole, with cupool in both, in one, in none."""

import subprocess
import sys

import harness

HERE = harness.SOURCE / "tests" / "gpu"


class IpcTest(harness.TestCase):
    def shares(self, module, script, *words, preload=True, **env):
        if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0:
            self.skipTest(f"no {module} here")
        command = [sys.executable, HERE / script, *words]
        settings = {"CUPOOL_STATS": "off", **env}
        result = harness.with_cupool(command, env=settings) if preload else harness.run(command)
        self.assertEqual(0, result.code, result.out + result.err)
        return result.tally(script.removeprefix("share_").removesuffix(".py"))

    def test_pytorch_shares_tensors_without_cupool(self):
        self.assertEqual(0, self.shares("torch", "share_tensors.py", preload=False)["wrong"])

    def test_pytorch_shares_tensors(self):
        self.assertEqual(0, self.shares("torch", "share_tensors.py")["wrong"])

    def test_pytorch_shares_tensors_without_cutting(self):
        self.assertEqual(0, self.shares("torch", "share_tensors.py", CUPOOL_SPLIT="0")["wrong"])

    def test_pytorch_shares_tensors_in_mapped_memory(self):
        self.assertEqual(0, self.shares("torch", "share_tensors.py", CUPOOL_SEGMENTS="mapped")["wrong"])

    def test_cupy_shares_handles_of_mapped_memory(self):
        tally = self.shares("cupy", "share_handles.py", CUPOOL_SEGMENTS="mapped")
        self.assertEqual((0, tally["blocks"]), (tally["refused"], tally["opened"]))

    def test_cupy_without_cupool_is_refused_mapped_blocks_and_sees_no_other_data(self):
        self.assertEqual(0, self.shares("cupy", "share_handles.py", "bare", CUPOOL_SEGMENTS="mapped")["opened"])

    def test_cupy_shares_handles(self):
        self.assertEqual(0, self.shares("cupy", "share_handles.py")["refused"])

    def test_cupy_without_cupool_is_refused_cut_blocks_and_sees_no_other_data(self):
        tally = self.shares("cupy", "share_handles.py", "bare")
        self.assertEqual(tally["blocks"], tally["opened"] + tally["refused"])
        self.assertGreater(tally["refused"], 0)

    def test_cupy_without_cupool_opens_every_block_that_is_not_cut(self):
        self.assertEqual(0, self.shares("cupy", "share_handles.py", "bare", CUPOOL_SPLIT="0")["refused"])


if __name__ == "__main__":
    harness.main()
