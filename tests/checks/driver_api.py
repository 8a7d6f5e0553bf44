"""Reads cuda.h, src/cuda/api.def and known.def: which driver functions can submit work, and which cupool knows.

cuda.h is read through the compiler with NVIDIA's own switch for all versions of a function, so that old ABI
names and the per-thread forms (_ptsz) are in the list too.
"""

import re
import subprocess
from pathlib import Path

# What makes a function able to submit work to a stream: the stream itself or a struct that holds one.
STREAM_TYPES = re.compile(r"\b(CUstream|CUlaunchConfig|CUDA_LAUNCH_PARAMS)\b")
# These take a launch's configuration to compute a figure from it.
COMPUTES_ONLY = re.compile(r"^cuOccupancy")
FUNCTION = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{}]*?)\)\s*;", re.DOTALL)


def preprocess(compiler, text, *flags):
    """The text after the C preprocessor, without line marks."""
    done = subprocess.run([compiler, "-E", "-P", "-x", "c", *flags, "-"], input=text, text=True, check=True,
                          capture_output=True)
    return done.stdout


def declared(compiler, include):
    """Every function of cuda.h with its parameters, old and per-thread forms included."""
    found = {}
    for switch in ([], ["-D__CUDA_API_VERSION_INTERNAL"]):
        text = preprocess(compiler, "#include <cuda.h>\n", f"-I{include}", *switch)
        found.update({name: parameters for name, parameters in FUNCTION.findall(text)})
    return found


def declared_later(source):
    """The functions of newer toolkits that src/cuda/later.hpp declares, per-thread forms included."""
    text = (Path(source) / "src/cuda/later.hpp").read_text()
    found = {name: parameters for name, parameters in FUNCTION.findall(text)}
    for plain, name in re.findall(r"^decltype\((\w+)\) (\w+);", text, re.MULTILINE):
        found[name] = found[plain]
    return found


def declared_elsewhere(name, include):
    """Whether another header of the toolkit (graphics, profiler) declares the function, or renames one to it."""
    name = without_per_thread(name)
    return any(re.search(rf"\b{name}\s*\(|#define \w+\s+{name}\b", path.read_text(errors="replace"))
               for path in Path(include).glob("cuda*.h"))


def stream_functions(declarations):
    """The names whose parameters can carry a stream, and those that use the default stream (they have a _ptds form)."""
    return {name for name, parameters in declarations.items()
            if (STREAM_TYPES.search(parameters) or name.endswith("_ptds") or f"{name}_ptds" in declarations)
            and not COMPUTES_ONLY.match(name)}


def exported_names(compiler, source):
    """The names libcupool.so exports, from the table through the same map that the linker gets."""
    source = Path(source)
    text = preprocess(compiler, (source / "src/hooks/doors/exports.map.in").read_text(), f"-I{source / 'src'}")
    return set(re.findall(r"\b(cu[A-Z]\w*|cupool_\w+\*?|dl\w+|_[eE]xit|exit|unshare|setns|InitializeInjectionNvtx2)\s*;", text))


def called_names(path):
    """The rows of api.def that cupool calls and leaves unhooked: someone has looked at them too."""
    return set(re.findall(r"^CUPOOL_(?:REAL|LATE)\((\w+)", Path(path).read_text(), re.MULTILINE))


def known_names(path):
    """The two lists of known.def: names that take no stream, and names that do but submit nothing, with why."""
    text = Path(path).read_text()
    plain = set(re.findall(r"^CUPOOL_KNOWN\((\w+)\)", text, re.MULTILINE))
    quiet = dict(re.findall(r'^CUPOOL_QUIET\((\w+),\s*"([^"]*)"\)', text, re.MULTILINE))
    return plain, quiet


def without_per_thread(name):
    """The plain form of a per-thread name: a reason given for one holds for both."""
    return re.sub(r"_pt[sd][sz]$", "", name)


def faults(declarations, table, plain, quiet):
    """One line for each stream function that is neither hooked nor excused, and each excuse that is none."""
    streams = stream_functions(declarations)
    found = []
    for name in sorted(streams - table):
        if without_per_thread(name) in plain:
            found.append(f"{name} can submit work, but known.def says that it takes no stream")
        elif without_per_thread(name) not in quiet:
            found.append(f"{name} can submit work and is neither in api.def nor excused in known.def")
    for name, reason in quiet.items():
        if not reason:
            found.append(f"{name} is excused without a reason")
        if name not in streams or name in table:
            found.append(f"{name} is excused, but nothing needs it")
    return found
