"""Reads the includes under src/ and lists every one that does not point down.

The order of the layers is stated here once for the check and once for people in docs/architecture.md.
"""

import re
from pathlib import Path

# From the top down. Folders of one row stand side by side and do not know each other.
LAYERS = [["hooks"], ["cuda", "share"], ["memory"], ["pool", "dedicated", "native"], ["mapped"], ["upstream", "allocator"], ["order"], ["context", "report"], ["driver", "neighbours"], ["config", "stats", "trace"], ["base"]]

# The layers within a folder, in the same way: every file of it lies in one of them.
INSIDE = {"hooks": [["calls"], ["process"], ["submit"], ["observe"], ["doors", "sharing"], ["state"]]}


def levels(rows):
    """How far up each folder of these rows stands."""
    return {name: len(rows) - row for row, names in enumerate(rows) for name in names}


LEVEL = levels(LAYERS)
LEVEL_INSIDE = {name: levels(rows) for name, rows in INSIDE.items()}

# Beside the layers: what each may include besides itself.
BESIDE = {"see": {"tools", "trace", "base"},
          "tools": {"replay", "report", "neighbours", "config", "stats", "trace", "base"},
          "replay": {"memory", "pool", "mapped", "order", "driver", "config", "stats", "base"},
          "sim": {"base"}, "glibc": {"base"}}

MAY_INCLUDE_CUDA = {"cuda", "hooks", "sim"}
# It sets how fmt is compiled, which must be the same everywhere.
INCLUDES_FMT = "base/format.hpp"
MAY_READ_ENVIRONMENT = {"config", "sim"}

SOURCE_SUFFIXES = {".cpp", ".hpp", ".h", ".c", ".S", ".def", ".in"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
CUDA_HEADER = re.compile(r"^(cuda\w*|nvml|cupti\w*|nvrtc|vector_types|driver_types)\.h$")
ENVIRONMENT = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
# A second way to make text.
PRINTF = re.compile(r"\bv?(?:f|s|sn|d|as)?printf\s*\(")


def source_files(root):
    """Every source file under root, in a stable order."""
    return sorted(p for p in Path(root).rglob("*") if p.is_file() and p.suffix in SOURCE_SUFFIXES)


def without_comments_and_strings(text):
    """The code alone: a comment may speak of getenv, and so may a message."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    return re.sub(r"//[^\n]*", " ", text)


def may_include(user, used):
    """Whether folder `user` may include a header of folder `used`."""
    if user == used:
        return True
    if user in BESIDE:
        return used in BESIDE[user]
    return used in LEVEL and LEVEL[used] < LEVEL[user]


def may_include_inside(folder, user, used):
    """The same for two parts of one folder."""
    level = LEVEL_INSIDE.get(folder)
    return level is None or user == used or (used in level and level[used] < level[user])


def faults(root):
    """One line for each thing under root (a src folder) that breaks the rule of the layers."""
    root = Path(root)
    found = []
    for path in source_files(root):
        relative = path.relative_to(root)
        folder = relative.parts[0] if len(relative.parts) > 1 else ""
        if folder not in LEVEL and folder not in BESIDE:
            found.append(f"{relative}: folder '{folder}' is no layer")
            continue
        part = relative.parts[1] if len(relative.parts) > 2 else ""
        if part not in LEVEL_INSIDE.get(folder, {part}):
            found.append(f"{relative}: '{part}' is no layer of {folder}/")
            continue
        text = path.read_text()
        for quote, header in INCLUDE.findall(text):
            if CUDA_HEADER.match(header) and folder not in MAY_INCLUDE_CUDA:
                found.append(f"{relative}: includes CUDA's {header}")
            elif header.startswith("fmt/") and str(relative) != INCLUDES_FMT:
                found.append(f"{relative}: includes fmt's {header} past {INCLUDES_FMT}")
            elif quote == '"' and "/" not in header:
                found.append(f"{relative}: '{header}' is not named from src/")
            elif quote == '"' and header.split("/")[0] != "cupool" and not may_include(folder, header.split("/")[0]):
                found.append(f"{relative}: includes {header}, which is not below {folder}/")
            elif quote == '"' and header.split("/")[0] == folder and not may_include_inside(folder, part, header.split("/")[1]):
                found.append(f"{relative}: includes {header}, which is not below {folder}/{part}/")
        if ENVIRONMENT.search(without_comments_and_strings(text)) and folder not in MAY_READ_ENVIRONMENT:
            found.append(f"{relative}: reads the environment")
        if PRINTF.search(without_comments_and_strings(text)):
            found.append(f"{relative}: makes text with printf instead of base/format.hpp")
    return found
