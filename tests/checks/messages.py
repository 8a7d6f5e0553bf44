"""Every message that a user can see, as it stands in the sources: one line each, with where it is said.

Run as a program it prints the list; with --write it replaces tests/data/messages.txt. A message that is not in that file fails a
test: whoever adds one reads it aloud once (what happened, what it means, what to do) and adds it.
"""

import re
import sys
from pathlib import Path

# The calls that speak to a user, up to the first string; a format that is chosen from two has both.
SPEAKS = re.compile(r"(?:log::line|(?:reader\.|\b)say|\bline|out\.print|out\.text|push_back|report::Mode|note_possible_bypass|print_wrapped)"
                    r"\s*\((?P<arguments>(?:[^;]|;(?=[^\n]*\"))*?)\)\s*;", re.DOTALL)
STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
FOLDERS = ("base", "config", "hooks", "pool", "report", "see", "tools")
# Formats of JSON and of tables say nothing by themselves.
WORDS = re.compile(r"[a-z]{2,}[ :,].*[a-z]{2,}")


def messages(root):
    """(file, text) of every string with words in a call that speaks."""
    found = set()
    for folder in FOLDERS:
        for path in sorted((Path(root) / "src" / folder).rglob("*.cpp")):
            for call in SPEAKS.finditer(path.read_text()):
                text = re.sub(r'"\s*"', "", call.group("arguments"))
                for string in STRING.findall(text):
                    string = string.replace("\\n", " ").strip()
                    if WORDS.search(string) and '\\"' not in string:
                        found.add((str(path.relative_to(Path(root) / "src")), " ".join(string.split())))
    return sorted(found)


def as_text(root):
    """The list as it is kept in tests/data/messages.txt."""
    return "".join(f"{name}: {text}\n" for name, text in messages(root))


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[2]
    if "--write" in sys.argv:
        (here / "tests/data/messages.txt").write_text(as_text(here))
    else:
        print(as_text(here), end="")
