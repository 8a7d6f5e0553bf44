"""Reads every C++ source and lists what the style of this project rules out: long files, files that do not open
with what they are, and words that mark work as unfinished."""

import re

MOST_LINES = 700
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|not (yet )?implemented|placeholder", re.IGNORECASE)
SUFFIXES = {".cpp", ".hpp", ".h", ".c", ".cu", ".S", ".py"}


def opens_with_comment(lines):
    """A source file starts by saying what it owns."""
    return bool(lines) and re.match(r"\s*(//|/\*|#\s)", lines[0]) is not None


def faults(paths):
    """One line for each thing in these files that breaks the style."""
    found = []
    for path in paths:
        lines = path.read_text().splitlines()
        if len(lines) > MOST_LINES:
            found.append(f"{path}: {len(lines)} lines")
        if path.suffix != ".py" and not opens_with_comment(lines):
            found.append(f"{path}: does not open with a comment that says what it owns")
        for number, line in enumerate(lines, 1):
            if UNFINISHED.search(line):
                found.append(f"{path}:{number}: {line.strip()}")
    return found


def files(root):
    """The C++ sources of the project."""
    return sorted(p for folder in ("src", "include", "tests") for p in (root / folder).rglob("*")
                  if p.is_file() and p.suffix in SUFFIXES and p.name != "sources.py" and p.name != "sources_test.py")
