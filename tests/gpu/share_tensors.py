"""Shares CUDA tensors of many sizes with another process through torch.multiprocessing, and checks every element twice."""

import sys

import torch
import torch.multiprocessing as mp

SIZES = [1, 3, 127, 128, 129, 1000, 8192, 8193, 100_000, 262_144, 300_000, 1_000_000, 5_300_000, 10_000_000]
ROUNDS = 3


def work(inbox, outbox):
    """Sees what the other process wrote, and adds one to it."""
    wrong = 0
    while (message := inbox.get()) is not None:
        tensor, value = message
        wrong += int((tensor != value).sum().item())
        tensor += 1
        torch.cuda.synchronize()
        del tensor
        outbox.put(wrong)


def main():
    """Three rounds, so that memory is recycled; tensors and views that start inside one."""
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=work, args=(inbox, outbox))
    child.start()
    wrong = shared = 0
    for turn in range(ROUNDS):
        for i, size in enumerate(SIZES):
            value = 100 * turn + i
            tensor = torch.full((size,), float(value), device="cuda")
            part = tensor[size // 2:] if turn == 1 else tensor
            torch.cuda.synchronize()
            inbox.put((part, float(value)))
            wrong += outbox.get()
            wrong += int((part != value + 1).sum().item())
            shared += 1
            del part, tensor
        torch.cuda.empty_cache()
    inbox.put(None)
    child.join()
    print(f"tensors: shared={shared} wrong={wrong} child={child.exitcode}")
    return 0 if wrong == 0 and child.exitcode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
