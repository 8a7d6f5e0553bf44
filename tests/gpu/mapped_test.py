"""Mapped segments where only a real device can show them: no fragmentation, no gap, and a way on when it is full."""

import json
import os
import re
import subprocess
import sys

import harness

MAPPED = {"CUPOOL_SEGMENTS": "mapped"}
LIBRARIES = harness.SOURCE / "tests" / "gpu" / "libraries.py"
TRAIN = harness.SOURCE / "tests" / "gpu" / "train.py"


class MappedTest(harness.TestCase):
    def victim(self, *words, **settings):
        done = harness.with_cupool([harness.victim("mapped"), *words], env=settings)
        self.assertEqual(0, done.code, done.out + done.err)
        self.assertIn("wrong=0", done.out)
        return done

    def test_a_fragmented_device_gives_half_of_itself_in_one_piece(self):
        self.victim("fragmented", **MAPPED)

    def test_giving_gigabytes_back_leaves_no_gap_between_kernels(self):
        said = re.search(r"gave back (\d+) MiB; longest ([0-9.]+) us", self.victim("gaps", **MAPPED).out)
        self.assertGreater(int(said[1]), 4096)
        self.assertLess(float(said[2]), 110)

    def test_a_program_bigger_than_its_limit_finishes_with_the_same_bytes(self):
        self.victim("bigger", "5", CUPOOL_LIMIT="4G", CUPOOL_SPILL="16G", **MAPPED)

    def pytorch(self, *command, **settings):
        """A program without PyTorch's own cache, under cupool if there are settings."""
        if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no PyTorch")
        env = {name: value for name, value in os.environ.items() if not name.startswith(("CUPOOL_", "PYTORCH_"))}
        env |= {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", **settings}
        if settings:
            env |= {"LD_PRELOAD": str(harness.LIBRARY), "CUPOOL_STATS": "json"}
        done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr[-2000:])
        return done

    def test_the_libraries_of_the_field_work_on_mapped_memory(self):
        ran = [line for line in self.pytorch(LIBRARIES).stdout.splitlines() if line.startswith("ran")]
        self.assertEqual(ran, [line for line in self.pytorch(LIBRARIES, **MAPPED).stdout.splitlines() if line.startswith("ran")])

    def train(self, **settings):
        """A training's weights and loss, and the most memory the pool had reserved."""
        done = self.pytorch(TRAIN, "transformer", "--json", "--rounds", "3", "--warm-up", "1", **settings)
        result = json.loads(done.stdout.splitlines()[-1])
        counters = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"')][-1]
        return (result["weights"], result["loss"]), counters

    def test_a_training_that_spills_computes_the_same_bits(self):
        plain, counters = self.train(**MAPPED)
        limit = counters["peak_reserved_bytes"] * 10 // 13
        spilled, counters = self.train(CUPOOL_LIMIT=str(limit), CUPOOL_SPILL="8G", **MAPPED)
        self.assertEqual(plain, spilled)
        self.assertGreater(counters["spilled_allocations"], 0)


if __name__ == "__main__":
    harness.main()
