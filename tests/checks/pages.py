"""Reads the pages for people: how long they are, whom they say they are for, and whether their links lead anywhere."""

import math
import re

# Three screens of 50 lines and 120 columns.
MOST_LINES, COLUMNS = 150, 120
# Proofs are as long as they are.
LONG = {"docs/order-proofs.md"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"(?m)^#+ (.*)$")
# What sources and scripts say of a page.
MENTION = re.compile(r"\bdocs/[\w.-]+\.(?:md|json|1)\b")


def lines_on_screen(text):
    """As a terminal of that width would wrap it."""
    return sum(max(1, math.ceil(len(line) / COLUMNS)) for line in text.splitlines())


def anchor(heading):
    """As the common renderers make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def says_whom_it_is_for(text):
    """In the first two lines after the title."""
    after = [line for line in text.splitlines()[1:] if line.strip()][:2]
    return any(re.search(r"\b[Ff]or (?:people|programmers|everybody)\b", line) for line in after)


def faults(root):
    """One line for each page that is too long, does not say whom it is for, or links to nothing."""
    pages = sorted([*root.glob("*.md"), *(root / "docs").glob("*.md")])
    found = []
    for page in pages:
        name, text = page.relative_to(root).as_posix(), page.read_text()
        if name not in LONG and lines_on_screen(text) > MOST_LINES:
            found.append(f"{name}: {lines_on_screen(text)} lines of {COLUMNS} columns")
        if not says_whom_it_is_for(text):
            found.append(f"{name}: does not say in its first two lines whom it is for")
        for link in LINK.findall(text):
            if "://" in link:
                continue
            path, _, part = link.partition("#")
            target = (page.parent / path) if path else page
            if not target.exists():
                found.append(f"{name}: {link} leads nowhere")
            elif part and part not in map(anchor, HEADING.findall(target.read_text())):
                found.append(f"{name}: {link} names no heading")
    index = (root / "docs/README.md").read_text() if (root / "docs/README.md").exists() else ""
    found += [f"docs/README.md does not list {page.name}" for page in pages
              if page.parent == root / "docs" and page.name != "README.md" and f"]({page.name})" not in index]
    return found


def mentions(root, paths):
    """One line for each page that a source, a script or a test names and that does not exist."""
    return [f"{path.relative_to(root)}: {name} does not exist" for path in paths
            for name in sorted(set(MENTION.findall(path.read_text(errors="replace")))) if not (root / name).exists()]
