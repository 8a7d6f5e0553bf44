"""A Python program with a leak and a stall, each on the line that says so."""

import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
kept = []
def take(size):
    block = ctypes.c_uint64()
    cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size))
    return block

def remember(size):
    kept.append(take(size))  # the leak

def step(number):
    block = take(100000)
    if number % 2 == 0:
        remember(50000)
    cuda.cuMemFree_v2(block)
    cuda.cuCtxSynchronize()  # the stall

def main():
    context = ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    for number in range(40):
        step(number)

main()
