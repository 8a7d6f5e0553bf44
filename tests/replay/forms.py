"""The same lives of allocations in every form that cupool replay reads."""

import random

MIB = 1 << 20


def lives(count, seed=1):
    """Lines (kind, block, bytes): allocations and frees of ragged sizes, and now and then work and a wait."""
    rng = random.Random(seed)
    held, lines = [], []
    for block in range(count):
        lines.append(("a", block, rng.choice([512, 5120, 70 * 1024, MIB, 5 * MIB, 30 * MIB])))
        held.append(block)
        lines.append(("k", 0, 0))
        if len(held) > 12:
            lines.append(("f", held.pop(rng.randrange(len(held))), 0))
        if block % 10 == 9:
            lines.append(("s", -1, 0))
    return lines


def text(lines):
    """As lines of text."""
    return "".join(f"a {n} {b} 0\n" if k == "a" else f"{k} {n} 0\n" for k, n, b in lines).encode()


def address(block):
    """Where a block lay: no address is used twice."""
    return 0x7F0000000000 + block * 64 * MIB


def rmm(lines):
    """As RMM logs it."""
    sizes = {n: b for k, n, b in lines if k == "a"}
    out, moment = ["Thread,Time,Action,Pointer,Size,Stream"], 0
    for kind, block, _ in lines:
        if kind in "af":
            moment += 7
            action = "allocate" if kind == "a" else "free"
            out.append(f"11,10:15:{moment // 10**6:02}:{moment % 10**6:06},{action},{address(block):#x},{sizes[block]},0x0")
    return ("\n".join(out) + "\n").encode()


def snapshot(lines, before=()):
    """As PyTorch's snapshot has it; `before`: sizes of blocks that are held from the beginning."""
    sizes = {n: b for k, n, b in lines if k == "a"}
    frames = [{"name": "forward", "filename": "/src/model.py", "line": 12}, {"name": "train", "filename": "/src/train.py", "line": 3}]
    events, moment = [], 1_000_000
    for kind, block, _ in lines:
        moment += 7
        entry = {"addr": address(block), "size": sizes.get(block, 0), "stream": 0, "time_us": moment, "frames": frames}
        if kind == "a":
            events.append({"action": "alloc", **entry})
        elif kind == "f":
            events += [{"action": "free_requested", **entry}, {"action": "free_completed", **entry}]
    held = [{"address": 0x600000000000 + i * 64 * MIB, "device": 0, "stream": 0, "total_size": b,
             "blocks": [{"size": b, "requested_size": b, "state": "active_allocated", "frames": frames}]} for i, b in enumerate(before)]
    return {"segments": held, "device_traces": [events], "allocator_settings": {"expandable_segments": False, "ratio": 0.5}}

