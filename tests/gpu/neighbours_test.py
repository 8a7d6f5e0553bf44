"""On a GPU: memory that a process has freed is there for the driver and for other processes."""

import json
import os
import re
import subprocess
import sys
import time

import harness

sys.path.insert(0, str(harness.SOURCE / "tests" / "gpu"))
from device_memory import DeviceMemory

HOLD = harness.SOURCE / "tests" / "gpu" / "hold.py"
EMPTIES = """
import sys, torch
blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(40)]
torch.cuda.synchronize()
del blocks
torch.cuda.empty_cache()
print("{}", flush=True)
sys.stdin.read()
"""


class NeighboursTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.children = []
        self.addCleanup(self.end_all)
        self.device = DeviceMemory()

    def end_all(self):
        for child in self.children:
            child.kill()
            child.wait()

    def start(self, *command, preload=True, **settings):
        """A program under cupool, and what it said when it had freed its memory; then it sleeps."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CUPOOL_")}
        if preload:
            env |= {"LD_PRELOAD": str(harness.LIBRARY), "CUPOOL_STATS": "off", "CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}
            env |= settings
        child = subprocess.Popen([sys.executable, *map(str, command)], env=env, text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        self.children.append(child)
        return json.loads(child.stdout.readline())

    def used_after(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.1)
        return self.device.used_mib()

    def test_eight_processes_that_each_once_took_nine_tenths_all_succeed(self):
        for _ in range(8):
            self.assertEqual([0], self.start(HOLD, 0.9)["codes"])

    def test_the_eighth_gets_what_seven_sleeping_ones_keep(self):
        for _ in range(7):
            self.assertEqual([0], self.start(HOLD, 0.13, 20, CUPOOL_DECAY_MS="0")["codes"])
        last = self.start(HOLD, 0.9)
        print(f"nine tenths of the device after {last['seconds']:.3f} s")
        self.assertEqual([0], last["codes"])

    def test_what_a_sleeping_program_has_freed_is_back_within_seconds(self):
        before = self.device.used_mib()
        if before is None:
            self.skipTest("no NVML here")
        self.start(HOLD, 0.5, 50)
        self.assertLess(self.used_after(5) - before, 2048)

    def test_what_a_framework_gave_up_is_back_within_seconds(self):
        if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no torch here")
        before = self.device.used_mib()
        self.start("-c", EMPTIES)
        self.assertLess(self.used_after(5) - before, 2048)

    def test_a_process_without_cupool_gets_it_too(self):
        self.start(HOLD, 0.9)
        self.used_after(5)
        self.assertEqual([0], self.start(HOLD, 0.9, preload=False)["codes"])

    def test_top_names_the_device_as_the_driver_does(self):
        self.start(HOLD, 0.01)
        processes = []
        while not processes:
            shown = harness.run([harness.BUILD / "cupool", "top", "--json"], env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)})
            processes = json.loads(shown.out)["processes"]
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
        self.assertIn(processes[0]["uuid"], re.findall(r"UUID: (\S+)\)", listed))


if __name__ == "__main__":
    harness.main()
