"""Reads docs/architecture.md: which folders of src/ and which files it names, and whether they exist."""

import re

import layers

# A folder of src/, written as `name/`, or a part of it, `name/part/`; a file, written with its path from src/ or from the root.
FOLDER = re.compile(r"`([a-z_]+(?:/[a-z_]+)?)/`")
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:hpp|cpp|def|py|md|pml))`")


def faults(page, root):
    """One line for each folder or file that is named and missing, or that is there and not named."""
    named = set(FOLDER.findall(page))
    there = {p.name for p in (root / "src").iterdir() if p.is_dir()}
    there |= {f"{name}/{p.name}" for name in layers.INSIDE for p in (root / "src" / name).iterdir() if p.is_dir()}
    found = [f"{name}/ is named, but is no folder of src/" for name in sorted(named - there)]
    found += [f"src/{name}/ is not named" for name in sorted(there - named)]
    found += [f"{name} is named, but does not exist" for name in sorted(set(FILE.findall(page)))
              if not (root / name).exists() and not (root / "src" / name).exists()]
    return found
