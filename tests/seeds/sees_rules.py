#!/usr/bin/env python3
"""Prints which of the sources of src/ see order/rules.hpp, through whatever headers; a semicolon between two, as CMake
has lists.

Usage: sees_rules.py SRC SOURCE...  (sources and what they include are relative to the folder SRC)
"""

import functools
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
RULES = "order/rules.hpp"


def main():
    root = Path(sys.argv[1])

    @functools.cache
    def included(name):
        """What a file includes itself; nothing of what lies elsewhere, such as what the build makes."""
        path = root / name
        return INCLUDE.findall(path.read_text(encoding="utf-8")) if path.is_file() else []

    def sees(source):
        met, left = {source}, [source]
        while left:
            new = set(included(left.pop())) - met
            met |= new
            left += new
        return RULES in met

    print(";".join(source for source in sys.argv[2:] if sees(source)), end="")


if __name__ == "__main__":
    main()
