#!/usr/bin/env python3
"""Says how long a step of large blocks takes, and the first steps after a pause in which idle memory went back.

Usage: PYTORCH_NO_CUDA_MEMORY_CACHING=1 LD_PRELOAD=build/libcupool.so tests/gpu/pause.py
"""

import statistics
import time

import torch

BLOCK = 32 << 20  # floats


def step():
    begin = time.perf_counter()
    for _ in range(40):
        a = torch.empty(BLOCK, device="cuda")
        a.fill_(1.0)
        b = a * 2
        c = b + a
        del a, b, c
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def main():
    steady = [step() for _ in range(40)]
    print(f"steady: {statistics.median(steady[10:]):.1f} ms a step")
    for pause in (1.0, 6.0):
        time.sleep(pause)
        print(f"after {pause:.0f} s: " + " ".join(f"{step():.1f}" for _ in range(5)))


if __name__ == "__main__":
    main()
