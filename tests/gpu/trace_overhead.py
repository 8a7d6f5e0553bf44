#!/usr/bin/env python3
"""What a trace costs a training: one process, rounds in turns without and with a trace, which the C interface begins and ends.

Usage: tests/gpu/trace_overhead.py [--library build/libcupool.so] [--pairs 12] [--steps 10] [--times 8] TASK...
For each task one process that only records, one with stacks (CUPOOL_STACKS=16: native frames and Python's) and one that
samples (CUPOOL_SAMPLE=4M with stacks). PyTorch's own cache is off, so every tensor is an event. Rounds are timed alone:
beginning and ending the trace lies between them. Prints the middle of the ratios of neighbours, their quartiles, and the
events a step.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODES = {"trace": {}, "stacks": {"CUPOOL_STACKS": "16"}, "sampled": {"CUPOOL_STACKS": "16", "CUPOOL_SAMPLE": "4M"}}


def inside(task_name, pairs, steps, times, path):
    """The training itself; prints the seconds of each round, without and with a trace in turns."""
    import torch

    import train
    from models import TASKS

    train.make_deterministic(seed=0)
    task = TASKS[task_name](small=False)
    task.count *= times
    interface = ctypes.CDLL(None)
    generator = torch.Generator().manual_seed(1)
    model = task.model().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batches = [[tensor.to("cuda") for tensor in batch] for batch in task.batches(generator)]
    took = []
    for number in range(2 * pairs + 2):
        # Which of a pair comes first changes from pair to pair.
        is_on = (number + number // 2) % 2 == 1
        if is_on and interface.cupool_trace_begin(path.encode()) != 0:
            raise SystemExit("the trace does not begin")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for step in range(steps):
            optimizer.zero_grad(set_to_none=True)
            task.loss(model, *batches[step % len(batches)]).backward()
            optimizer.step()
        torch.cuda.synchronize()
        took.append((is_on, time.perf_counter() - begin))
        if is_on:
            interface.cupool_trace_end()
            size = os.stat(path).st_size
            os.unlink(path)
    print(json.dumps({"took": took[2:], "bytes": size}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--library", type=Path, default=Path("build/libcupool.so"))
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--times", type=int, default=8, help="so many times larger batches than the models' own")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options.tasks[0], options.pairs, options.steps, options.times, options.inside)
        return
    print("| training | batches | mode | time with a trace / without: middle | quartiles | ms a step | bytes a step |")
    print("|---|---|---|---|---|---|---|")
    for task in options.tasks:
        for mode, settings in MODES.items():
            env = {k: v for k, v in os.environ.items() if not k.startswith(("CUPOOL_", "PYTORCH_"))}
            env |= settings | {"LD_PRELOAD": str(options.library.resolve()), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "CUPOOL_STATS": "off",
                               "PYTHONPATH": str(HERE)}
            command = [sys.executable, __file__, task, "--pairs", str(options.pairs), "--steps", str(options.steps), "--times",
                       str(options.times), "--inside", f"/tmp/trace-{mode}"]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != 0:
                print(f"{task} {mode}: {done.stderr[-300:]}")
                continue
            result = json.loads(done.stdout.splitlines()[-1])
            pairs = [dict(result["took"][i:i + 2]) for i in range(0, len(result["took"]), 2)]
            ratios = [pair[True] / pair[False] for pair in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4)
            each = statistics.median(pair[False] for pair in pairs) / options.steps * 1e3
            print(f"| {task} | x{options.times} | {mode} | {middle:.4f} | {low:.4f} to {high:.4f} | {each:.2f} | "
                  f"{result['bytes'] // options.steps} |", flush=True)
            for line in done.stderr.splitlines():
                if "stack" in line:
                    print("   ", line[:160])


if __name__ == "__main__":
    main()
