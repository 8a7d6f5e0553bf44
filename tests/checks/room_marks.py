"""Holds the marks CUPOOL_ROOM of src/cuda/api.def against the documentation in cuda.h: a call that can fail for want of memory is repeated.

The documentation names fewer functions than the driver refuses (no launch, no graph), so a mark without it is no fault. All
versions of a function are marked alike: only the newest is documented.
"""

import re
from pathlib import Path

MARK = re.compile(r"^CUPOOL_ROOM(?:_ONLY)?\((\w+),", re.MULTILINE)
# A comment of the documentation and the function behind it; a condition may stand between them.
DOCUMENTED = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*(?:#if[^\n]*\s+)*(?:__CUDA_DEPRECATED\s+)?CUresult\s+CUDAAPI\s+(\w+)\s*\(", re.DOTALL)
RENAME = re.compile(r"^\s*#\s*define (cu[A-Z]\w*)\s+(?:__CUDA_API_PT\w+\()?(cu\w+?)\)?\s*$", re.MULTILINE)

ASKS = "asks, takes nothing"
OF_32_BITS = "of the first ABI, whose addresses have 32 bits"
ON_THE_HOST = "edits a graph on the host; device memory is taken when it is instantiated"
LINKS = "linking is done on the host, and an input added twice would be another error"
EXCUSED = {
    "cuDeviceGetNvSciSyncAttributes": ASKS,
    "cuStreamGetDevice": ASKS,
    "cuStreamGetFlags": ASKS,
    "cuStreamGetPriority": ASKS,
    "cuGraphBatchMemOpNodeSetParams": ON_THE_HOST,
    "cuGraphClone": ON_THE_HOST,
    "cuGraphCreate": ON_THE_HOST,
    "cuGraphEventRecordNodeSetEvent": ON_THE_HOST,
    "cuGraphEventWaitNodeSetEvent": ON_THE_HOST,
    "cuGraphExternalSemaphoresSignalNodeSetParams": ON_THE_HOST,
    "cuGraphExternalSemaphoresWaitNodeSetParams": ON_THE_HOST,
    "cuLinkAddData_v2": LINKS,
    "cuLinkAddFile_v2": LINKS,
    "cuLinkCreate_v2": LINKS,
    "cuMemAddressReserve": "addresses take no device memory",
    "cuMemAllocPitch": OF_32_BITS,
    "cuModuleGetGlobal": OF_32_BITS,
    "cuMemAlloc_v2": "served by the pool, which releases and repeats by itself",
    "cuMemHostUnregister": "releases, takes nothing",
}


def plain(name):
    """The name without version and per-thread form."""
    return re.sub(r"(_v\d+)?(_pt[sd][sz])?$", "", name)


def refusable(header):
    """The functions whose documentation lists OUT_OF_MEMORY among the answers, as the ABI names them; and how many were read."""
    renames = dict(RENAME.findall(header))
    documented = DOCUMENTED.findall(header)
    found = set()
    for text, name in documented:
        answers = " ".join(part.split("\\sa")[0] for part in text.split("\\return")[1:])
        if "CUDA_ERROR_OUT_OF_MEMORY" in answers:
            found.add(renames.get(name, name))
    return found, len(documented)


def marks(source):
    """The marked rows of api.def; each stands for its per-thread form too."""
    return set(MARK.findall((Path(source) / "src/cuda/api.def").read_text()))


def faults(documented, names, marked, excused):
    """One line for each function that lacks its mark, and each excuse that is none. `names`: every function known."""
    families = {plain(name) for name in marked}
    versions = {re.sub(r"_pt[sd][sz]$", "", name) for name in names if plain(name) in families}
    needed = {name: "can be refused for want of memory and is not marked" for name in documented - marked}
    needed.update({name: "is not marked, but another version of it is" for name in versions - marked})
    found = [f"{name} {why}" for name, why in sorted(needed.items()) if name not in excused]
    for name, reason in excused.items():
        if not reason:
            found.append(f"{name} is excused without a reason")
        if name not in needed:
            found.append(f"{name} is excused, but nothing needs it")
    return found
