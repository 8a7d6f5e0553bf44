#!/usr/bin/env python3
"""One round of work through each library that programs use on a GPU: cuBLAS, cuDNN, cuSOLVER, cuFFT, cuSPARSE, CUB,
NCCL with one rank, Triton, fused attention, a captured graph, and copies on two streams.

Usage: tests/gpu/libraries.py [rounds]. Prints which parts ran; a library that is not there is named and left out.
cupti_count runs it under CUPTI: where the counting library is loaded, its records are flushed at the end.
"""

import ctypes
import os
import sys
import tempfile

import torch
from torch.nn import functional

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:
    @triton.jit
    def add_kernel(x, y, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def cublas():
    a = torch.randn(512, 512, device="cuda")
    (a @ a).sum().item()
    torch.bmm(a.half().view(4, 128, 512), a.half().view(4, 512, 128)).sum().item()


def cudnn():
    x = torch.randn(8, 16, 64, 64, device="cuda", requires_grad=True)
    weight = torch.randn(32, 16, 3, 3, device="cuda", requires_grad=True)
    functional.conv2d(x, weight, padding=1).relu().sum().backward()


def cusolver():
    a = torch.randn(64, 64, device="cuda")
    torch.linalg.cholesky(a @ a.T + 64 * torch.eye(64, device="cuda"))
    torch.linalg.svd(a)
    torch.linalg.eigh(a + a.T)
    torch.linalg.qr(a)


def cufft():
    torch.fft.ifft(torch.fft.fft(torch.randn(64, 1000, device="cuda"))).real.sum().item()


def cusparse():
    sparse = torch.eye(256, device="cuda").to_sparse_csr()
    (sparse @ torch.randn(256, 64, device="cuda")).sum().item()


def cub():
    values = torch.randint(1000, (100000,), device="cuda")
    torch.sort(values)
    torch.cumsum(values, 0)
    torch.unique(values)


def attention():
    q = torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.half, requires_grad=True)
    functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()


def graph():
    """Without allocations inside: with PyTorch's cache off a capture may not allocate."""
    x = torch.randn(1000, device="cuda")
    y = torch.empty_like(x)
    torch.mul(x, 2, out=y)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        torch.mul(x, 2, out=y)
        y.zero_()
        y.add_(x)
    for _ in range(3):
        captured.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, y)


def copies():
    host = torch.randn(1 << 20).pin_memory()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        there = host.to("cuda", non_blocking=True)
        back = there.cpu()
    torch.cuda.current_stream().wait_stream(side)
    there.record_stream(torch.cuda.current_stream())
    assert torch.equal(there.cpu(), back)


def triton_kernel():
    x, y = torch.randn(2, 10000, device="cuda")
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    assert torch.allclose(out, x + y)


def nccl():
    torch.distributed.all_reduce(torch.ones(1000, device="cuda"))
    gathered = [torch.empty(1000, device="cuda")]
    torch.distributed.all_gather(gathered, torch.ones(1000, device="cuda"))
    torch.distributed.reduce_scatter_tensor(torch.empty(1000, device="cuda"), torch.ones(1000, device="cuda"))
    torch.cuda.synchronize()


def start_nccl(directory):
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("nccl", init_method=f"file://{directory}/meet", rank=0, world_size=1)


def flush_counts():
    """Only there when cupti_count loaded its library into this process."""
    path = os.environ.get("CUDA_INJECTION64_PATH")
    if path:
        ctypes.CDLL(path).cupti_count_flush()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    parts = {"cublas": cublas, "cudnn": cudnn, "cusolver": cusolver, "cufft": cufft, "cusparse": cusparse, "cub": cub,
             "attention": attention, "copies": copies, "triton": triton_kernel, "nccl": nccl, "graph": graph}
    missing = {}
    if triton is None:
        missing["triton"] = "cannot be imported"
    with tempfile.TemporaryDirectory() as directory:
        try:
            start_nccl(directory)
        except Exception as error:  # a machine without NCCL still shows the rest
            missing["nccl"] = str(error)
        for _ in range(rounds):
            for name, part in parts.items():
                if name in missing:
                    continue
                try:
                    part()
                except Exception as error:
                    missing[name] = str(error)
        torch.cuda.synchronize()
        if "nccl" not in missing:
            torch.distributed.destroy_process_group()
    torch.cuda.synchronize()
    flush_counts()
    for name, why in missing.items():
        print(f"left out {name}: {' '.join(why.split())[:300]}")
    print("ran " + " ".join(name for name in parts if name not in missing), flush=True)


if __name__ == "__main__":
    main()
