#!/usr/bin/env python3
"""Compares a trace of a PyTorch training with PyTorch's own memory snapshot of the same training, event by event.

Usage: tests/gpu/snapshot_agrees.py [--build build] [--rounds 2] [--keep FOLDER] TASK...
Two runs a task. With PyTorch's cache on, every segment of the snapshot must stand in the trace, in the same order, with
the same address and size. With the cache off PyTorch records nothing, so the trace of that run is compared with the
snapshot of the first: every allocation and free in the same order with the same sizes; what the trace has beyond them
is told by its size: libraries ask the driver themselves. Then the peak and its ten largest holders of both snapshots,
PyTorch's and `cupool report --pytorch`'s, are computed the same way, as the viewer does it.
Ends with 1 where they differ.
"""

import argparse
import collections
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

CHILD = """
import pickle, sys
import train, torch
torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python")
train.make_deterministic(seed=0)
task = train.TASKS[sys.argv[1]](small=False)
train.train(task, "cuda", int(sys.argv[2]), 0, False, train.Turns(False))
with open(sys.argv[3], "wb") as file:
    pickle.dump(torch.cuda.memory._snapshot(), file)
"""


def run(task, rounds, library, trace, snapshot, settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUPOOL_", "PYTORCH_"))}
    env |= settings | {"LD_PRELOAD": str(library), "CUPOOL_TRACE": str(trace), "CUPOOL_STACKS": "16",
                       "CUPOOL_TRACE_MAX": "4G", "CUPOOL_STATS": "off", "PYTHONPATH": str(HERE)}
    subprocess.run([sys.executable, "-c", CHILD, task, str(rounds), str(snapshot)], env=env, check=True, timeout=300)


def dumped(command, trace):
    """The allocations and frees of device memory in a trace: ("alloc" or "free", address, bytes)."""
    sizes, events = {}, []
    with subprocess.Popen([command, "trace", "--dump", trace], stdout=subprocess.PIPE, text=True) as reader:
        for line in reader.stdout:
            _, _, what, *fields = line.split(" ")
            if what not in ("allocated", "freed"):
                continue
            fields = dict(field.rstrip("\n").split("=", 1) for field in fields if "=" in field)
            address = int(fields.get("address", "0"), 0)
            if what == "allocated":
                if fields["kind"] in ("pinned", "registered", "array"):
                    continue
                sizes[address] = int(fields["asked"])
                events.append(("alloc", address, sizes[address]))
            elif address in sizes:
                events.append(("free", address, sizes.pop(address)))
    return events


def missing_of(wanted, found, is_same):
    """How many of the wanted do not stand in the found in the same order, and what else stands there."""
    others, at, missing = [], 0, []
    for event in wanted:
        begin = at
        while at < len(found) and not is_same(event, found[at]):
            at += 1
        if at == len(found):
            missing.append(event)
            at = begin
            continue
        others += found[begin:at]
        at += 1
    return missing, others + found[at:]


def pair_up(wanted, found):
    """As missing_of, for runs with other addresses: a free matches if it frees the partner of what was freed."""
    partner = {}

    def is_same(mine, theirs):
        if mine[0] != theirs[0] or mine[2] != theirs[2]:
            return False
        if mine[0] == "alloc":
            partner[mine[1]] = theirs[1]
            return True
        return partner.get(mine[1]) == theirs[1]

    return missing_of(wanted, found, is_same)


def top_of(snapshot):
    """The peak of a snapshot's live blocks and the ten largest of them: bytes, and the innermost frame of a program's file."""
    live, total, peak, at_peak = {}, 0, 0, {}
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry
            total += entry["size"]
            if total > peak:
                peak, at_peak = total, None
        elif entry["action"] == "free_completed" and entry["addr"] in live:
            if at_peak is None:
                at_peak = dict(live)
            total -= live.pop(entry["addr"])["size"]
    largest = sorted((at_peak if at_peak is not None else live).values(), key=lambda entry: -entry["size"])[:10]

    def own(entry):
        for frame in entry.get("frames", []):
            if os.path.basename(frame["filename"]) in ("models.py", "train.py"):
                return f"{os.path.basename(frame['filename'])}:{frame['line']} {frame['name'].split('.')[-1]}"
        return "-"

    return peak, [(entry["size"], own(entry)) for entry in largest]


def brief(events):
    count = collections.Counter((what, size) for what, _, size in events)
    return ", ".join(f"{number} x {what} {size}" for (what, size), number in count.most_common(6)) or "none"


def compare(task, options, folder):
    command, library = str(options.build / "cupool"), (options.build / "libcupool.so").resolve()
    paths = {name: folder / f"{task}.{name}" for name in ("on.trace", "on.pickle", "off.trace", "off.pickle", "ours.pickle")}
    run(task, options.rounds, library, paths["on.trace"], paths["on.pickle"], {})
    run(task, options.rounds, library, paths["off.trace"], paths["off.pickle"], {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    with open(paths["on.pickle"], "rb") as file:
        theirs = pickle.load(file)
    entries = theirs["device_traces"][0]

    names = {"segment_alloc": "alloc", "segment_free": "free"}
    segments = [(names[e["action"]], e["addr"], e["size"]) for e in entries if e["action"] in names]
    missing, others = missing_of(segments, dumped(command, paths["on.trace"]), lambda mine, found: mine == found)
    print(f"{task}, cache on: {len(segments)} segment events, {len(missing)} missing in the trace; beyond them: {brief(others)}")
    failed = bool(missing) or not segments

    names = {"alloc": "alloc", "free_requested": "free"}
    blocks = [(names[e["action"]], e["addr"], e["size"]) for e in entries if e["action"] in names]
    found = dumped(command, paths["off.trace"])
    missing, others = pair_up(blocks, found)
    print(f"{task}, cache off: {len(blocks)} events, {len(missing)} missing in the trace; beyond them: {brief(others)}")
    if missing:
        print(f"  missing first: {missing[:5]}")
    failed |= bool(missing) or not blocks

    subprocess.run([command, "report", "--pytorch", "-o", paths["ours.pickle"], paths["off.trace"]], check=True, timeout=300)
    with open(paths["ours.pickle"], "rb") as file:
        ours = pickle.load(file)
    (their_peak, their_top), (our_peak, our_top) = top_of(theirs), top_of(ours)
    print(f"{task}: peak {their_peak} in PyTorch's snapshot, {our_peak} in ours ({our_peak - their_peak:+} by libraries)")
    for mine, other in zip(their_top, our_top):
        print(f"  {mine[0]:>12} {mine[1]:<44} | {other[0]:>12} {other[1]}{'' if mine[0] == other[0] else '   DIFFERS'}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where traces and snapshots stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return max([compare(task, options, options.keep or Path(folder)) for task in options.tasks])


if __name__ == "__main__":
    sys.exit(main())
