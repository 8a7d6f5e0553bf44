#!/usr/bin/env python3
"""Trains each model with PyTorch's own cache, the driver's stream-ordered pool, no cache, and no cache under cupool,
taking turns, and prints one short table: pace against PyTorch's own cache, device memory, and whether bits agree.

Usage: tests/gpu/compare_training.py [--library build/libcupool.so] [--tasks transformer,llama+copies,turns,...] [--repeat 2]
Memory is the most that NVML saw in use on the whole device while the program ran, so nothing else should use it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from device_memory import DeviceMemory, PeakMemory

HERE = Path(__file__).resolve().parent
RAW = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
ASYNC = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
# name: environment, whether cupool is preloaded
MODES = {"own": ({}, False), "async": (ASYNC, False), "raw": (RAW, False), "cupool": (RAW, True),
         "fences": ({**RAW, "CUPOOL_STREAMS": "fences"}, True), "exact": ({**RAW, "CUPOOL_STREAMS": "exact"}, True),
         "mapped": ({**RAW, "CUPOOL_SEGMENTS": "mapped"}, True), "before": (RAW, True)}
TASKS = "transformer,convolution,llama,graph,convolution+copies"
TWO_STREAMS = ("turns", "prefetch64", "prefetch256")


def program_of(task):
    """The command that trains it."""
    name, _, copies = task.partition("+")
    program = "two_streams.py" if name in TWO_STREAMS else "train.py"
    return [sys.executable, str(HERE / program), name, *(["--copies"] if copies else [])]


def run(task, mode, options, device):
    """One training: what it printed, the peak of the device's memory and cupool's counters; or why there is none."""
    settings, preload = MODES[mode]
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("CUPOOL_", "PYTORCH_")) and k != "LD_PRELOAD"} | settings
    if preload:
        library = options.before if mode == "before" else options.library
        env |= {"LD_PRELOAD": str(library.resolve()), "CUPOOL_STATS": "json"}
    command = [*program_of(task), "--json", *(["--smoke"] if options.smoke else [])]
    try:
        with PeakMemory(device) as watch:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=options.timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"took more than {options.timeout} s"
    if done.returncode != 0:
        return f"exit code {done.returncode}: {' '.join(done.stderr.split())[-300:]}"
    lines = done.stderr.splitlines()
    counters = [json.loads(line) for line in lines if line.startswith('{"')]
    said = [line for line in lines if "cupool" in line and not line.startswith('{"')]
    if said:
        print(f"{task} {mode}: {said[-1][:200]}", file=sys.stderr)
    return {**json.loads(done.stdout.splitlines()[-1]), "peak_mib": watch.peak_mib,
            "counters": counters[-1] if counters else {}}


def bits(results, mode):
    """What a mode's runs computed; several values when its own runs disagree."""
    return {(r["loss"], r["weights"]) for r in results.get(mode, [])}


def agreement(results, mode):
    """How the bits of this mode stand to the raw driver's."""
    raw, other = bits(results, "raw"), bits(results, mode)
    if not raw or not other:
        return "?"
    if len(raw) > 1:
        return "raw differs from itself"
    return "same bits" if other == raw else "DIFFERENT" if len(bits(results, "own") | raw) == 1 else "as unlike as own"


def middle(results, mode, key):
    values = [r[key] for r in results.get(mode, []) if r[key] is not None]
    return statistics.median(values) if values else None


def cell(value, form):
    return format(value, form) if value is not None else "-"


def report(everything, modes):
    others = [mode for mode in modes if mode != "own"]
    print(f"{'training':20}{'own ms':>8}" + "".join(f"{mode + '/own':>11}" for mode in others) + "  |"
          + "".join(f"{mode + ' MiB':>12}" for mode in modes) + "  | against raw")
    for task, results in everything.items():
        own = middle(results, "own", "ms")
        ratios = [middle(results, mode, "ms") for mode in others]
        ratios = [r / own if r and own else None for r in ratios]
        verdicts = ", ".join(f"{mode} {agreement(results, mode)}" for mode in modes if mode != "raw")
        print(f"{task:20}{cell(own, '8.2f'):>8}" + "".join(f"{cell(r, '11.3f'):>11}" for r in ratios) + "  |"
              + "".join(f"{cell(middle(results, mode, 'peak_mib'), '12.0f'):>12}" for mode in modes) + f"  | {verdicts}")
    for task, results in everything.items():
        for mode in modes:
            counters = results.get(mode, [{}])[-1].get("counters") if results.get(mode) else None
            if counters:
                kept = ("mode", "mode_reason", "allocations", "seals", "stream_waits", "context_waits", "pool_waits", "lane_changes", "segments_allocated",
                        "segments_released", "unknown_entry_points")
                print(f"  {task} {mode}: " + ", ".join(f"{k} {counters[k]}" for k in kept if k in counters))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, default=Path("build/libcupool.so"))
    parser.add_argument("--before", type=Path, help="another libcupool.so, for the mode of that name")
    parser.add_argument("--tasks", default=TASKS, help="names of models, each with +copies for a second stream")
    parser.add_argument("--modes", default="own,async,raw,cupool")
    parser.add_argument("--repeat", type=int, default=2, help="runs of own and of cupool; the others run once")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one training")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no further training begins")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--json", type=Path, help="file for every run's figures")
    options = parser.parse_args()
    modes, device, failed = options.modes.split(","), DeviceMemory(), 0
    everything, begin = {task: {} for task in options.tasks.split(",")}, time.monotonic()
    for turn in range(options.repeat):
        for task, results in everything.items():
            now = [mode for mode in modes if turn == 0 or mode not in ("async", "raw")]
            for mode in now if turn % 2 == 0 else reversed(now):
                if time.monotonic() - begin > options.budget:
                    continue
                result = run(task, mode, options, device)
                if isinstance(result, str):
                    failed += 1
                    print(f"{task} {mode}: {result}", file=sys.stderr, flush=True)
                else:
                    results.setdefault(mode, []).append(result)
    report(everything, modes)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")
    different = sum(agreement(results, mode) == "DIFFERENT" for results in everything.values() for mode in modes)
    return 1 if failed or different else 0


if __name__ == "__main__":
    sys.exit(main())
