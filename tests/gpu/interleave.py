#!/usr/bin/env python3
"""Trains one model with several libraries at once, a round of each in turn, and prints how the rounds compare.

Usage: tests/gpu/interleave.py TASK MODE=LIBRARY[,NAME=VALUE...] ... [--rounds 40] [--steps N] [--json FILE]
A library may be empty: PyTorch's own cache. The first is what the others are compared with.
All processes live side by side, but only the one whose turn it is has work, so that what else happens on the machine meets
all alike: the machine's pace drifts by tens of percents within a minute, which no row of whole runs averages out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from compare_training import RAW, program_of

HERE = Path(__file__).resolve().parent


def start(command, rounds, library, settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUPOOL_", "PYTORCH_")) and k != "LD_PRELOAD"}
    if library:
        env |= RAW | {"LD_PRELOAD": str(Path(library).resolve()), "CUPOOL_STATS": "off"}
    env |= dict(setting.split("=", 1) for setting in settings)
    return subprocess.Popen([*command, "--json", "--turns", "--warm-up", "0", "--rounds", str(rounds)], env=env,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def turn(process):
    """Lets it run one round; milliseconds a step."""
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit(f"a training ended early with exit code {process.wait()}")
    return float(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("modes", nargs="+")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=6)
    parser.add_argument("--times", type=int, default=1, help="so many times larger batches, so that the device sets the pace")
    parser.add_argument("--steps", type=int, help="steps of a round, for the programs of two_streams.py")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    processes = {}
    command = [*program_of(options.task), *(["--times", str(options.times)] if options.times > 1 else []),
               *(["--steps", str(options.steps)] if options.steps else [])]
    for mode in options.modes:
        name, _, how = mode.partition("=")
        library, *settings = how.split(",")
        processes[name] = start(command, options.rounds, library, settings)
    times = {name: [] for name in processes}
    for number in range(options.rounds):
        names = list(processes)
        # Each follows each as often.
        for name in names[number % len(names):] + names[:number % len(names)]:
            times[name].append(turn(processes[name]))
    for process in processes.values():
        process.communicate()
    first = list(processes)[0]
    for name, all_ in times.items():
        mine, theirs = all_[options.warm_up:], times[first][options.warm_up:]
        ratios = sorted(a / b for a, b in zip(mine, theirs))
        quarter = len(ratios) // 4
        print(f"{options.task:12} {name:10} {statistics.median(mine):8.3f} ms a step, fastest {min(mine):8.3f}; of {first}: "
              f"{statistics.median(ratios):.3f} (half of the rounds {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})")
    if options.json:
        options.json.write_text(json.dumps(times) + "\n")


if __name__ == "__main__":
    main()
