"""The long form of the seeds test: many.py FIRST COUNT. A third of the runs have a fault injected."""

import sys
import time

import runs

BATCH = 500


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    begin = time.time()
    bad = 0
    for start in range(first, first + count, BATCH):
        size = min(BATCH, first + count - start)
        faults = size // 3
        jobs = [*runs.seeded_jobs(start, size - faults), *runs.fault_jobs(start, faults)]
        found = runs.findings(jobs)
        bad += len(found)
        for finding in found:
            print(finding, flush=True)
        print(f"{start + size - first} runs, {bad} findings, {time.time() - begin:.0f} s", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
