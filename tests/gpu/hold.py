#!/usr/bin/env python3
"""Takes a share of the device's memory with the driver's own calls, frees it, says so, and sleeps in the host's code.

Usage: tests/gpu/hold.py SHARE [PIECES]
SHARE is of the device's whole memory. Prints one line of JSON when it has freed all: how long the allocations took, in
seconds, and whether they succeeded; then waits until its standard input is closed.
"""

import ctypes
import json
import sys
import time

share, pieces = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_void_p
free, total = ctypes.c_size_t(), ctypes.c_size_t()
codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
         cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))]
blocks = [pointer() for _ in range(pieces)]
begin = time.monotonic()
for block in blocks:
    codes.append(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(int(total.value * share / pieces))))
seconds = time.monotonic() - begin
for block in blocks:
    if block.value:
        codes.append(cuda.cuMemFree_v2(block))
print(json.dumps({"codes": sorted(set(codes)), "seconds": seconds}), flush=True)
sys.stdin.read()
