#!/usr/bin/env python3
"""How much of the device memory that the driver charges a process is explained, while trainings and libraries run.

Usage: tests/gpu/every_byte.py [--build build] [program.py arguments...]
Without a program: the four trainings of train.py and libraries.py (cuBLAS, cuDNN, NCCL, graphs), one after the other. Each
runs under cupool with CUPOOL_STATS=text and without PyTorch's cache; a thread of it asks for the table every half second.
Prints for each: how NVML knows it, the last table with the program's work done, and the least and the median share that is
explained, with and without the row "work", which is known by elimination alone.
"""

import argparse
import ctypes
import os
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROW = re.compile(r"^cupool: (\w+) +(-?\d+)  ")


def tables(text):
    """(head, {row: bytes}) of every device in a report."""
    found = []
    for line in text.splitlines():
        if line.startswith("cupool: --- device "):
            found.append((line, {}))
        elif found and (row := ROW.match(line)):
            found[-1][1][row.group(1)] = int(row.group(2))
        elif found and line.startswith("cupool: CUPOOL_"):
            break
    return [(head, rows) for head, rows in found if "unexplained" in rows]


def inside(log, program, arguments):
    """Runs the program in this process, and writes a report now and then beside it."""
    own = ctypes.CDLL(None)
    over = threading.Event()

    def ask():
        while not over.wait(0.5):
            own.cupool_write_stats()
            report = Path(os.environ["CUPOOL_STATS_FILE"])
            if report.exists():
                with open(log, "a", encoding="utf-8") as out:
                    out.write(report.read_text() + "=====\n")

    thread = threading.Thread(target=ask)
    thread.start()
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        over.set()
        thread.join()


def share(rows, without=()):
    charged = sum(rows.values())
    part = sum(bytes_ for name, bytes_ in rows.items() if name != "unexplained" and name not in without)
    return 100 * (1 - abs(charged - part) / charged) if charged else 100.0


def watch(build, program, arguments):
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        environment = {**os.environ, "LD_PRELOAD": str(build / "libcupool.so"), "CUPOOL_STATS": "text",
                       "CUPOOL_STATS_FILE": f"{scratch}/stats.txt", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        done = subprocess.run([sys.executable, __file__, "--inside", log, program, *arguments], env=environment,
                              capture_output=True, text=True, check=False)
        pieces = log.read_text().split("=====\n") if log.exists() else []
        at_end = Path(scratch) / "stats.txt"
        pieces.append(at_end.read_text() if at_end.exists() else "")
        title = " ".join([Path(program).name, *arguments])
        print(f"== {title}: exit code {done.returncode}")
        if done.returncode != 0:
            print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
        seen = [table for piece in pieces for table in tables(piece)[:1]]
        if not seen:
            print("no table:", pieces[-1][-1500:])
            return False
        whole = [share(rows) for _, rows in seen]
        narrow = [share(rows, ("work",)) for _, rows in seen]
        last = max(seen, key=lambda table: sum(table[1].values()))
        print(last[0])
        for name, bytes_ in last[1].items():
            print(f"   {name:<16} {bytes_ / 2**20:10.1f} MiB")
        print(f"== {title}: explained at least {min(whole):.2f} %, median {statistics.median(whole):.2f} %, at the end "
              f"{whole[-1]:.2f} %; without the row work {min(narrow):.2f} %, {statistics.median(narrow):.2f} %; "
              f"{len(seen)} tables", flush=True)
        return min(whole) >= 99


def main():
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=HERE.parents[1] / "build")
    parser.add_argument("program", nargs="?")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    jobs = [(options.program, options.arguments)] if options.program else [
        *((str(HERE / "train.py"), [task, "--rounds", "6", "--warm-up", "2"])
          for task in ("transformer", "convolution", "llama", "graph")),
        (str(HERE / "libraries.py"), ["2"])]
    good = [watch(options.build.resolve(), program, arguments) for program, arguments in jobs]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
