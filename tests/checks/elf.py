"""Reads a built library with readelf and nm: what it needs, what it exports, and which functions call themselves."""

import re
import subprocess

# The C library in all its parts, and the loader itself by its name on either architecture.
MAY_NEED = re.compile(r"^(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1)$")

# The oldest glibc on which everything that is installed loads: that of RHEL 8, and older than Ubuntu 20.04's and Debian 11's.
OLDEST_GLIBC = (2, 28)


def _lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def needed(path):
    """The libraries the loader must find before this one works."""
    return [m.group(1) for line in _lines("readelf", "-dW", path) if (m := re.search(r"\(NEEDED\).*\[(.*)\]", line))]


def exports(path):
    """The names other objects can bind to, without their versions."""
    return {line.split()[-1].split("@")[0] for line in _lines("nm", "-D", "--defined-only", path)}


def versioned(path):
    """The exported names that carry a symbol version of our own: a named node would switch the override off."""
    return [line.split()[-1] for line in _lines("nm", "-D", "--defined-only", "--with-symbol-versions", path)
            if "@" in line.split()[-1]]


def has_text_relocations(path):
    """Whether the loader would have to patch code."""
    return any("TEXTREL" in line for line in _lines("readelf", "-dW", path))


def too_new(path, oldest=OLDEST_GLIBC):
    """The functions that a glibc as old as that does not have under the version this file asks for."""
    found = []
    for line in _lines("objdump", "-T", path):
        need = re.search(r"\*UND\*.*\(?GLIBC_([0-9.]+)\)?\s+(\S+)$", line)
        if need and tuple(int(n) for n in need.group(1).split(".")) > oldest:
            found.append(f"{need.group(2)} of glibc {need.group(1)}")
    # A version that no symbol carries is checked by the loader too.
    for line in _lines("readelf", "-VW", path):
        need = re.search(r"Name: GLIBC_(?:ABI_(\w+)|([0-9.]+))\b", line)
        if need and (need.group(1) or tuple(int(n) for n in need.group(2).split(".")) > oldest):
            found.append(f"needs {need.group(0).split()[-1]}")
    return sorted(found)


def faults(path, promised):
    """One line for each way in which the library is not as promised (a set of names, cupool_* aside)."""
    found = [f"needs {name}" for name in needed(path) if not MAY_NEED.match(name)]
    exported = exports(path)
    found += [f"exports {name}" for name in sorted(exported - promised) if not name.startswith("cupool_")]
    found += [f"does not export {name}" for name in sorted(promised - exported)]
    found += [f"{name} carries a version" for name in versioned(path)]
    if has_text_relocations(path):
        found.append("has text relocations")
    return found


def weaknesses(path, machine):
    """One line for each way in which a binary is less hardened than promised."""
    dynamic = "\n".join(_lines("readelf", "-dW", path))
    segments = "\n".join(_lines("readelf", "-lW", path))
    notes = "\n".join(_lines("readelf", "-nW", path))
    symbols = "\n".join(_lines("nm", "-a", "-C", path)) + "\n".join(_lines("nm", "-D", path))
    found = []
    if "BIND_NOW" not in dynamic and "Flags: NOW" not in dynamic:
        found.append("binds lazily")
    if "GNU_RELRO" not in segments:
        found.append("has no read-only relocations")
    if not re.search(r"GNU_STACK.* RW ", segments):
        found.append("has an executable stack")
    if "__stack_chk_fail" not in symbols:
        found.append("has no stack protector")
    if machine.startswith("x86_64") and "SHSTK" not in notes:
        found.append("is not marked for shadow stacks")
    return found


# The instruction that an indirect jump may lead to, and what an object says that has it wherever it needs to.
LANDING_PADS = {"x86_64": (bytes.fromhex("f30f1efa"), "IBT"), "aarch64": (bytes.fromhex("5f2403d5"), "BTI")}


def unmarked(objects, machine):
    """Those of the object files that do not say that they have landing pads."""
    _, mark = LANDING_PADS[machine.split("-")[0]]
    return [str(path) for path in objects if not re.search(rf"Properties:.*\b{mark}\b", "\n".join(_lines("readelf", "-nW", path)))]


def without_pad(path, machine):
    """The exported functions that do not begin with a landing pad."""
    pad, _ = LANDING_PADS[machine.split("-")[0]]
    sections = [[int(word, 16) for word in found.groups()] for line in _lines("readelf", "-SW", path)
                if (found := re.search(r"PROGBITS +([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+) 00 +AX ", line))]
    image = path.read_bytes()
    found = []
    for line in _lines("nm", "-D", "--defined-only", path):
        address, kind, name = line.split()[:3]
        if kind not in "TW":
            continue
        for start, offset, size in sections:
            if 0 <= (inside := int(address, 16) - start) < size and image[offset + inside:offset + inside + len(pad)] != pad:
                found.append(name)
    return sorted(found)


def dead_runtime(path):
    """Parts of the C++ runtime that nothing of ours calls."""
    symbols = "\n".join(_lines("nm", "-a", "-C", path))
    return [name for name in ("__cxa_throw", "cplus_demangle", "d_print_comp", "__verbose_terminate_handler", "std::locale") if name in symbols]


def calls(path):
    """What each function of an object file refers to, by symbols. The object has a section for every function and was not
    optimised, for a tail call to itself would be a loop that no relocation tells of."""
    found, function = {}, None
    for line in _lines("readelf", "-rW", path):
        section = re.search(r"^Relocation section '\.rela?\.text\.(\S+)'", line)
        if line.startswith("Relocation section"):
            function = section and section.group(1)
        elif function and (target := re.match(r"[0-9a-f]+ +[0-9a-f]+ +R_\S+ +[0-9a-f]+ +([^ .@]+)", line)):
            found.setdefault(function, set()).add(target.group(1))
    return found


def endless(path):
    """The functions of an object file that come back to themselves, straight or through others of the same file."""
    graph = calls(path)
    found = []
    for function in graph:
        reached, ahead = set(), set(graph[function])
        while ahead:
            one = ahead.pop()
            reached.add(one)
            ahead |= graph.get(one, set()) - reached
        if function in reached:
            found.append(function)
    return sorted(found)
