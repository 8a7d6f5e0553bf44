"""Holds the table of locks (src/base/lock_ranks.def) against the locks that src/ declares and against docs/locks.md.

Run as a program with --write it puts the table into the page.
"""

import re
import sys
from pathlib import Path

ROW = re.compile(r'^CUPOOL_LOCK\(k(\w+), (\d+), (\w+), (\w+),\s+"([^"]+)"\)$', re.MULTILINE)
DECLARED = re.compile(r"\bLock \w+[^;{(]*(?:\([^)]*\))?\s*\{(?:cupool::)?Rank::k(\w+)\};")
HEAD = "| rank | lock | the driver may be called | tried out of order | guards |\n|---|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def rows(root):
    """(name, rank, calls, tries, guards) of every row."""
    return ROW.findall((root / "src/base/lock_ranks.def").read_text())


def table(root):
    """The rows as the page shows them."""
    answer = {"may": "yes", "none": "no", "anytime": "yes", "ordered": "no"}
    return HEAD + "".join(f"| {rank} | {name} | {answer[calls]} | {answer[tries]} | {guards} |\n"
                          for name, rank, calls, tries, guards in rows(root))


def faults(root):
    """One line for each row without a lock, each that two locks have, and a page that shows another table."""
    known = [row[0] for row in rows(root)]
    declared = [name for path in sorted((root / "src").rglob("*.?pp")) for name in DECLARED.findall(path.read_text())]
    found = [f"{name}: no lock is declared with this rank" for name in known if name not in declared]
    found += [f"{name}: {declared.count(name)} locks are declared with this rank" for name in known if declared.count(name) > 1]
    shown = TABLE.search((root / "docs/locks.md").read_text())
    if shown is None or shown.group() != table(root):
        found.append("docs/locks.md shows another table: tests/checks/lock_ranks.py --write")
    return found


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[2]
    if "--write" in sys.argv:
        page = here / "docs/locks.md"
        page.write_text(TABLE.sub(lambda _: table(here), page.read_text()))
    print("\n".join(faults(here)))
