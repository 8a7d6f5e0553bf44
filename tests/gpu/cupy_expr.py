#!/usr/bin/env python3
"""A CuPy expression over 1 Mi floats, its temporaries from CuPy's own pool, the driver's stream-ordered pool, or plain
cudaMalloc (which cupool serves when preloaded). Checks the result against NumPy and prints microseconds an iteration.

Usage: tests/gpu/cupy_expr.py [own|async|plain]
"""

import statistics
import sys
import time

import cupy
import numpy


def expression(xp, x, y):
    a = xp.sin(x) * y + xp.cos(y) * x
    b = xp.exp(-a * a) + xp.sqrt(xp.abs(x - y))
    c = (a + b) * (a - b) / (1 + b * b)
    return xp.maximum(c * 2 + a * 3 - b, x)


def main():
    allocator = sys.argv[1] if len(sys.argv) > 1 else "own"
    if allocator == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    elif allocator == "plain":
        cupy.cuda.set_allocator(None)
    random = numpy.random.default_rng(5)
    x, y = (random.standard_normal(1 << 20, dtype=numpy.float32) for _ in range(2))
    on_device = cupy.asarray(x), cupy.asarray(y)
    expected = expression(numpy, x, y)
    times, wrong = [], 0
    for number in range(12):
        cupy.cuda.get_current_stream().synchronize()
        begin = time.perf_counter()
        for _ in range(50):
            result = expression(cupy, *on_device)
        cupy.cuda.get_current_stream().synchronize()
        if number >= 2:
            times.append((time.perf_counter() - begin) * 1e6 / 50)
        wrong += not numpy.allclose(cupy.asnumpy(result), expected, rtol=1e-3, atol=1e-4)
    bits = int(cupy.asnumpy(result).view(numpy.uint32).sum(dtype=numpy.uint64))
    print(f"cupy {allocator}: us={statistics.median(times):.1f} low={min(times):.1f} high={max(times):.1f} "
          f"wrong={wrong} sum={bits}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
