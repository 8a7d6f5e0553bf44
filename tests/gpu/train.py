#!/usr/bin/env python3
"""Trains one of the small models of models.py and says how long a step took, the loss and what the weights became.

Usage: tests/gpu/train.py transformer|convolution|llama|graph [--copies] [--json]
Who serves the memory is decided from outside, by the environment (compare_training.py does it): nothing here knows.
With --copies every batch comes to the device on a second stream, one step ahead, as a prefetching loader does it.
Prints: milliseconds a step (median over rounds), the last loss with all digits, a digest of the weights' bits, and the
device memory in use at the end, this process still alive.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
import warnings

# cuBLAS is deterministic only with a workspace of fixed size, and reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

from device_memory import DeviceMemory
from models import TASKS

try:
    from torch.utils import deterministic
except ImportError:  # before PyTorch 2.2
    deterministic = None


def make_deterministic(seed):
    warnings.filterwarnings("ignore", message=".*deterministic.*")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if deterministic is not None:
        # Every new tensor would be written once more: not what programs do.
        deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.set_float32_matmul_precision("high")


def as_needed(batches, device):
    for batch in batches:
        yield [tensor.to(device, non_blocking=True) for tensor in batch]


def one_step_ahead(batches, device):
    """The copies run on a stream of their own; the training's stream waits for the copy it needs and no other."""
    side, training = torch.cuda.Stream(), torch.cuda.current_stream()

    def fetch(batch):
        with torch.cuda.stream(side):
            return [tensor.to(device, non_blocking=True) for tensor in batch]

    coming = fetch(batches[0])
    for after in [*batches[1:], None]:
        training.wait_stream(side)
        here = coming
        for tensor in here:
            tensor.record_stream(training)
        coming = fetch(after) if after is not None else None
        yield here


class Turns:
    """Rounds that begin when interleave.py lets them, if it started this program; each tells how long it took."""

    def __init__(self, wanted):
        self.wanted = wanted

    def wait(self):
        if self.wanted:
            sys.stdin.readline()

    def over(self, milliseconds):
        if self.wanted:
            print(milliseconds, flush=True)


def train(task, device, rounds, warm_up, copies, turns):
    """Milliseconds a step of every round after the warm-up, the last loss and the model."""
    generator = torch.Generator().manual_seed(1)
    model = task.model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = one_step_ahead if copies else as_needed
    on_gpu = device == "cuda"
    times, loss, steps = [], None, 0
    for number in range(rounds):
        batches = task.batches(generator)
        if on_gpu:
            batches = [[tensor.pin_memory() for tensor in batch] for batch in batches]
            torch.cuda.synchronize()
        turns.wait()
        begin = time.perf_counter()
        for batch in loader(batches, device):
            optimizer.zero_grad(set_to_none=True)
            loss = task.loss(model, *batch)
            loss.backward()
            optimizer.step()
            steps += 1
        if on_gpu:
            torch.cuda.synchronize()
        took = (time.perf_counter() - begin) * 1e3 / len(batches)
        turns.over(took)
        if number >= warm_up:
            times.append(took)
    return times, loss.item(), steps, model


def digest(model):
    """One word for every bit of the weights."""
    sum_ = hashlib.sha256()
    for parameter in model.parameters():
        sum_.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return sum_.hexdigest()[:16]


def tell(as_json, times, model, **more):
    """The result of a training, as one line for people or for compare_training.py."""
    result = {**more, "ms": statistics.median(times), "fastest": min(times), "slowest": max(times), "weights": digest(model),
              "end_mib": DeviceMemory().used_mib(), "torch": torch.__version__}
    if as_json:
        print(json.dumps(result), flush=True)
    else:
        print(f"{result['task']}: {result['ms']:.3f} ms a step ({result['fastest']:.3f} to {result['slowest']:.3f}), "
              f"loss {result['loss']}, weights {result['weights']}, device memory {result['end_mib'] or 0:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--copies", action="store_true", help="copy each batch ahead, on a second stream")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=4, help="rounds that are not timed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=1, help="so many times larger batches, so that the device sets the pace")
    parser.add_argument("--turns", action="store_true", help="begin a round when a line comes in")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes; without a GPU on the processor")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() or not options.smoke else "cpu"
    if device == "cpu":
        options.copies = False
    make_deterministic(seed=0)
    task = TASKS[options.task](small=options.smoke)
    if options.times > 1:
        task.count *= options.times
    times, loss, steps, model = train(task, device, options.rounds, options.warm_up, options.copies,
                                     Turns(options.turns))
    tell(options.json, times, model, task=options.task, copies=options.copies, steps=steps, loss=repr(loss))


if __name__ == "__main__":
    main()
