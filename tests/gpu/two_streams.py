#!/usr/bin/env python3
"""Two programs whose work goes down two streams: what a cache that knows streams is built for.

Usage: tests/gpu/two_streams.py turns|prefetch64|prefetch256 [--rounds 12] [--steps N] [--pause S] [--json] [--smoke]
turns: a training whose layers take turns between two streams, two at a time.
prefetchN: a training whose next batch of N MiB is copied and normalised on a side stream.
Prints what train.py prints, so that compare_training.py can run either.
"""

import argparse
import time

import torch
from train import Turns, make_deterministic, tell

DEVICE = "cuda"


def layers_of(width, count):
    return torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(count)).to(DEVICE)


def take_turns(layers, x, streams):
    """One pass; each pair of layers on the other stream, which first waits for the one before."""
    for number, layer in enumerate(layers):
        stream, other = streams[number // 2 % 2], streams[1 - number // 2 % 2]
        stream.wait_stream(other)
        with torch.cuda.stream(stream):
            x = torch.nn.functional.gelu(layer(x)) + 0.5 * x
            x.record_stream(other)
    return x, stream


def turns(options):
    width, count, batch = (64, 4, 32) if options.smoke else (2048, 24, 2048)
    layers = layers_of(width, count)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    batches = [torch.randn(batch - 64 * (i % 3), width, device=DEVICE) for i in range(3)]

    def step(number):
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        y, last = take_turns(layers, batches[number % 3], streams)
        torch.cuda.current_stream().wait_stream(last)
        loss = y.square().mean()
        loss.backward()
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, layers, 8


def prefetch(options, mebibytes):
    width = 1024
    rows = (1 if options.smoke else mebibytes) * 2**20 // 4 // width
    layers = layers_of(width, 4)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    side = torch.cuda.Stream()
    host = [torch.randint(0, 255, (rows, width)).float().pin_memory() for _ in range(2)]
    state = {"next": None}

    def fetch(number):
        with torch.cuda.stream(side):
            batch = host[number % 2].to(DEVICE, non_blocking=True)
            return (batch - 127.5) / 73.9

    def step(number):
        batch = state["next"] if state["next"] is not None else fetch(number)
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        state["next"] = fetch(number + 1)
        x = batch
        for layer in layers:
            x = torch.relu(layer(x))
        loss = x.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, layers, 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["turns", "prefetch64", "prefetch256"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=4, help="rounds that are not timed")
    parser.add_argument("--steps", type=int, help="steps of a round")
    parser.add_argument("--pause", type=float, default=0, help="seconds without work before each round, so that memory goes back")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", action="store_true", help="begin a round when a line comes in")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    make_deterministic(seed=0)
    if options.task == "turns":
        step, model, steps = turns(options)
    else:
        step, model, steps = prefetch(options, int(options.task.removeprefix("prefetch")))
    steps = options.steps or steps
    times, number, loss, turns_ = [], 0, None, Turns(options.turns)
    for turn in range(options.rounds):
        torch.cuda.synchronize()
        time.sleep(options.pause)
        turns_.wait()
        begin = time.perf_counter()
        for _ in range(steps):
            loss = step(number)
            number += 1
        torch.cuda.synchronize()
        took = (time.perf_counter() - begin) * 1e3 / steps
        turns_.over(took)
        if turn >= options.warm_up:
            times.append(took)
    tell(options.json, times, model, task=options.task, steps=number, loss=repr(loss.item()))


if __name__ == "__main__":
    main()
