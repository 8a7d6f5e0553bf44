"""The scripted victim under cupool: steps in, its output and the JSON report out."""

import json
import tempfile
from pathlib import Path

import harness

PROGRAM = harness.BUILD / "tests" / "report" / "script"
MIB = 1 << 20


class Played(harness.Result):
    """A finished run and what its report says."""

    counters: dict = {}

    def printed(self, name):
        """The values that the steps p:NAME printed, in order."""
        return [int(line.split()[1]) for line in self.out.splitlines() if line.startswith(name + " ")]


def play(*steps, driver_env=None, **options):
    """Runs the steps with options as limit="1G"; the report goes to a file, so stderr is what was said besides."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        env = {f"CUPOOL_{name.upper()}": str(value) for name, value in options.items()}
        env.setdefault("CUPOOL_STATS", "json")
        env.setdefault("CUPOOL_STATS_FILE", str(report))
        done = harness.with_cupool([PROGRAM, *steps], env={**env, **(driver_env or {})}, driver="sim")
        played = Played(done.code, done.out, done.err, done.device)
        played.counters = json.loads(report.read_text()) if report.exists() else {}
        return played


def needs_signals(test):
    """Skips a test under an emulator: a handler that uses the stack as any function may crashes there."""
    if harness.EMULATOR:
        test.skipTest("the emulator does not run signal handlers right")


def fill(count, size, name="b"):
    """Steps that allocate `count` blocks of `size` bytes."""
    return [f"a:{name}{i}:{size}" for i in range(count)]


def drain(count, name="b"):
    """Steps that free what fill() allocated."""
    return [f"f:{name}{i}" for i in range(count)]
