"""Shares raw memory handles between two processes through CuPy, without its pool, and checks every element."""

import subprocess
import sys

import cupy

SIZES = [4, 512, 516, 4096, 32_768, 32_772, 1 << 20, (1 << 20) + 4, 3 << 20, 20 << 20, 40_000_000]
ROUNDS = 3
runtime = cupy.cuda.runtime


def view(pointer, size):
    """The memory as numbers."""
    memory = cupy.cuda.UnownedMemory(pointer, size, None)
    return cupy.ndarray((size // 4,), dtype=cupy.uint32, memptr=cupy.cuda.MemoryPointer(memory, 0))


def importer():
    """One line for each block: handle, size, value. Opens all of them before the first is closed."""
    opened = []
    wrong = refused = 0
    for line in sys.stdin:
        handle, size, value = line.split()
        try:
            pointer = runtime.ipcOpenMemHandle(bytes.fromhex(handle))
        except runtime.CUDARuntimeError:
            refused += 1
            continue
        opened.append((pointer, int(size), int(value)))
    for pointer, size, value in opened:
        numbers = view(pointer, size)
        wrong += int((numbers != value).sum())
        numbers += 1
    runtime.deviceSynchronize()
    for pointer, _, _ in reversed(opened):
        runtime.ipcCloseMemHandle(pointer)
    print(f"{len(opened)} {refused} {wrong}")


def exporter(command):
    """Blocks of three rounds, with others between them that come and go."""
    blocks, lines = [], []
    for turn in range(ROUNDS):
        passing = []
        for i, size in enumerate(SIZES):
            passing.append(runtime.malloc(size))
            pointer = runtime.malloc(size)
            value = 1000 * turn + i
            view(pointer, size)[...] = value
            blocks.append((pointer, size, value))
            lines.append(f"{runtime.ipcGetMemHandle(pointer).hex()} {size} {value}\n")
        for pointer in passing:
            runtime.free(pointer)
    runtime.deviceSynchronize()
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=False)
    opened, refused, wrong = (int(word) for word in done.stdout.split())
    for pointer, size, value in blocks:
        numbers = view(pointer, size)
        changed = int((numbers != value + 1).sum())
        wrong += min(changed, int((numbers != value).sum()))
        runtime.free(pointer)
    print(f"handles: blocks={len(blocks)} opened={opened} refused={refused} wrong={wrong} child={done.returncode}")
    return 0 if wrong == 0 and done.returncode == 0 else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["import"]:
        importer()
        sys.exit(0)
    # "bare": the importer runs without any preloaded library.
    without = ["env", "-u", "LD_PRELOAD"] if sys.argv[1:] == ["bare"] else []
    sys.exit(exporter([*without, sys.executable, __file__, "import"]))
