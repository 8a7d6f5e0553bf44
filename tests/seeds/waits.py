"""The cases of the `waits` victim and the settings they are played with: the one list of both.

waits.py [seeds] [case or mode …] plays every case in every mode at so many seeds on the simulated driver, and
tells what did not end well with the command that repeats it.
"""

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import harness
import sanitizer

WAITS = harness.victim("waits")
OBSERVER = harness.BUILD / "sim" / "libcupool_observer.so"
ENDS = {0: "right", 1: "wrong", 2: "driver error", 3: "hang (watchdog)", 86: "hazard", 87: "hang", 88: "added wait",
        89: "hang of its own", None: "did not end"}

MODES = {
    "lanes": {},
    "fences": {"CUPOOL_STREAMS": "fences"},
    "exact": {"CUPOOL_STREAMS": "exact", "CUPOOL_SIM_WAITS": "exact"},
    "waiting frees": {"CUPOOL_FREE": "sync"},
    "whole segments": {"CUPOOL_SPLIT": "no"},
    "mapped": {"CUPOOL_SEGMENTS": "mapped", "CUPOOL_DECAY_MS": "1"},
    "native": {"CUPOOL_BACKEND": "native"},
    "old driver": {"CUPOOL_SIM_DRIVER_VERSION": "12040"},
}

# Where a case need not end well, and why:
# - By default a thread may be given memory that another one freed, on terms that make its work wait for that free. A
#   program that shows no stream memory operation can meet the hang that remains (docs/known-issues.md).
# - Memory of the driver's own pool has no legacy handle, tokens or dma-buf, and no other device can access it
#   (docs/native.md).
# - The driver's own pool gets memory that is freed during a capture only afterwards, and only by a thread with a
#   context (docs/native.md).
# - Mapped memory has no legacy handle or tokens, and SYNC_MEMOPS cannot be set on it (docs/mapped.md).
# On a GPU besides: while one thread's free waits, the other's submissions do (docs/driver.md), so that these programs
# hang bare, as does `copies-contexts` on one device; and the native pool's two streams share the device's queues with the program's, and its memory takes no
# values (docs/native.md).
NOT_IN = {
    "threads-free-kernel": ["lanes", "fences", "whole segments", "mapped", "old driver"],
    **({"threads-free": [*MODES], "threads-free-kernel": [*MODES], "copies-contexts": [*MODES], "destroy": ["native"],
        "destroy-reused": ["native"], "two-contexts-word": ["native"]}
       if harness.DRIVER == "gpu" else {}),
    "dma-buf": ["native"],
    **{case: ["native"] for case in ("peers-late-64K", "peers-late-4M", "peers-one-way", "peers-anew", "peers-twice")},
    "freed-in-capture": ["native"],
    "freed-in-capture-elsewhere": ["native"],
    **{case: ["native", "mapped"] for case in ("p2p-tokens", "ipc-4K", "ipc-4M", "ipc-64M", "ipc-written", "ipc-while-waiting")},
    **{case: ["mapped"] for case in ("sync-memops", "sync-memops-while-waiting")},
}


def cases():
    """What the victim says it has."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(harness.BUILD / "sim"), **sanitizer.options()}
    listed = subprocess.run([*harness.EMULATOR, str(WAITS), "list"], env=environment, capture_output=True, text=True,
                            check=True)
    return listed.stdout.split()


def modes_of(case):
    """The modes in which a case must end."""
    return [mode for mode in MODES if mode not in NOT_IN.get(case, [])]


def settings(mode, seed):
    """The environment of one run; no mode: bare."""
    simulated = {"CUPOOL_SIM_SEED": str(seed), "CUPOOL_SIM_DEVICES": "2", "CUPOOL_SIM_HANG_MS": "10000"}
    return {**simulated, **(MODES[mode] if mode is not None else {})}


def play(case, mode, seed=1, driver="sim"):
    """One run: bare without a mode, else under cupool, on the simulated driver with the observer in front."""
    preload = [] if mode is None else [harness.LIBRARY]
    if driver == "sim" and preload:
        preload.insert(0, OBSERVER)
    return harness.run([WAITS, case], preload=preload, env=settings(mode, seed), driver=driver)


def repeat_with(case, mode, seed):
    """A line for a shell."""
    loader = {"LD_LIBRARY_PATH": str(harness.BUILD / "sim")}
    if mode is not None:
        loader["LD_PRELOAD"] = harness.preloaded(OBSERVER, harness.LIBRARY)
    words = ["env", *(f"{key}={value}" for key, value in {**settings(mode, seed), **loader}.items()), WAITS, case]
    return " ".join(shlex.quote(str(word)) for word in words)


def main():
    """Every case, mode and seed asked for; exit code 1 when one of them did not end well."""
    words = sys.argv[1:]
    seeds = int(words.pop(0)) if words and words[0].isdigit() else 200
    modes = [mode for mode in MODES if mode in words] or list(MODES)
    chosen = [case for case in cases() if case in words] or cases()
    begin, bad = time.time(), {}
    jobs = [(case, mode, seed) for case in chosen for mode in [None, *modes] if mode is None or mode in modes_of(case)
            for seed in range(1, seeds + 1)]

    def run(job):
        try:
            result = play(*job)
            return result.code, result.err
        except subprocess.TimeoutExpired:
            return None, ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for job, (code, text) in zip(jobs, pool.map(run, jobs)):
            case, mode, seed = job
            if code in (0, harness.SKIPPED):
                continue
            bad.setdefault((case, mode), []).append((seed, code))
            if len(bad[(case, mode)]) == 1:
                print(f"{case}, {mode or 'bare'}, seed {seed}: {ENDS.get(code, code)}\n{text}\n  {repeat_with(*job)}",
                      flush=True)
    for (case, mode), found in bad.items():
        codes = ", ".join(sorted({ENDS.get(code, str(code)) for _, code in found}))
        print(f"FAILED {case}, {mode or 'bare'}: {len(found)} of {seeds} seeds ({codes})")
    print(f"{len(jobs)} runs, {sum(map(len, bad.values()))} findings, {time.time() - begin:.0f} s")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
