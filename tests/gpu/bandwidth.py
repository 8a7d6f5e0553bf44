#!/usr/bin/env python3
"""How fast a kernel reads a block: sums it up several times and prints the fastest in GB/s.

Usage: tests/gpu/bandwidth.py [GIBIBYTES, default 2]
Without PyTorch's own cache (PYTORCH_NO_CUDA_MEMORY_CACHING=1) the block comes from whoever serves cudaMalloc.
"""

import sys

import torch

ROUNDS = 20


def main():
    gibibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    block = torch.ones(gibibytes << 28, dtype=torch.float32, device="cuda")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    fastest = float("inf")
    for _ in range(ROUNDS):
        begin.record()
        block.sum()
        end.record()
        end.synchronize()
        fastest = min(fastest, begin.elapsed_time(end))
    print(f"bandwidth: {block.nbytes / fastest / 1e6:.0f} GB/s over {gibibytes} GiB")


if __name__ == "__main__":
    main()
