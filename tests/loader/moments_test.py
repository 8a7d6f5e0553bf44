"""Random moments of signals, reports and exits amid allocations: no hang, no crash, no torn or half file. More of them by
hand: CUPOOL_TEST_MOMENTS=10000 and, where it should begin elsewhere, CUPOOL_TEST_SEED."""

import json
import os
import signal
import subprocess

import harness

MOMENTS = int(os.environ.get("CUPOOL_TEST_MOMENTS", "60"))
FIRST = int(os.environ.get("CUPOOL_TEST_SEED", "0"))
# exit() in a handler, or the signal itself.
ENDS = {3, -15, -2, -1}


def heed_signals():
    """A shell's background job, and nohup, ignore some of them."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class MomentsTest(harness.TestCase):
    def test_a_process_ends_well_at_any_moment(self):
        self.need_native()
        self.need_no_sanitizer("instrumented code needs more stack")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CUPOOL_")}
        environment.update(LD_PRELOAD=harness.preloaded(harness.LIBRARY), LD_LIBRARY_PATH=str(harness.BUILD / "sim"), **self.own_registry())
        silent = 0
        for seed in range(FIRST, FIRST + MOMENTS):
            report = self.scratch / "report.json"
            settings = {"CUPOOL_STATS": "json", "CUPOOL_STATS_FILE": str(report), "CUPOOL_STATS_SIGNAL": "USR2"} if seed % 3 else {}
            done = subprocess.run([harness.victim("moments"), str(seed)], env={**environment, **settings}, capture_output=True,
                                  text=True, timeout=60, check=False, preexec_fn=heed_signals)
            self.assertIn(done.returncode, ENDS, (seed, done.stderr))
            names = os.listdir(self.scratch)
            self.assertEqual([report.name] if settings else [], names, (seed, done.stderr))
            if settings:
                self.assertIn("allocations", json.loads(report.read_text()), seed)
                report.unlink()
            elif "allocation" not in done.stderr:
                silent += 1
        self.assertEqual(0, silent)


if __name__ == "__main__":
    harness.main()
