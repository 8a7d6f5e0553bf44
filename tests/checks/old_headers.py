"""Makes of this toolkit's cuda.h what the one of CUDA 12.0 would be to us: without the functions that came later, as
cudaTypedefs.h dates them, and without the types and errors that came with them."""

import re
from pathlib import Path

OLDEST = 12000

LATER_TYPES = ("CUgraphEdgeData", "CUctxCreateParams", "CUmemDecompressParams", "CUmemcpyAttributes", "CUDA_MEMCPY3D_BATCH_OP")
LATER_ERRORS = ("CUDA_ERROR_CONTAINED", "CUDA_ERROR_TENSOR_MEMORY_LEAK")
FUNCTION = re.compile(r"^[ \t]*CUresult CUDAAPI (\w+)\s*\([^;]*\);", re.MULTILINE)


def dates_of(include):
    """The toolkits in which the versions of a function came, oldest first, by its plain name."""
    found = {}
    text = (Path(include) / "cudaTypedefs.h").read_text()
    for name, version in re.findall(r"\(CUDAAPI \*PFN_(\w+?)_v(\d+)(?:_ptsz|_ptds)?\)\s*\(", text):
        found.setdefault(name, set()).add(int(version))
    return {name: sorted(versions) for name, versions in found.items()}


def old_header(include):
    """The text of the older header, and the names (as the ABI has them) of the functions that it lacks."""
    dates = dates_of(include)
    text = (Path(include) / "cuda.h").read_text()
    renames = dict(re.findall(r"^\s*#\s*define (cu[A-Z]\w*)\s+(?:__CUDA_API_PT\w+\()?(cu\w+?)\)?\s*$", text, re.MULTILINE))
    lacks = set()

    def is_later(name):
        plain, number = re.fullmatch(r"(\w+?)(?:_v(\d))?(?:_ptsz|_ptds)?", name).groups()
        versions = dates.get(plain, [0])
        return versions[min(int(number or 1), len(versions)) - 1] > OLDEST

    def without(part, names):
        def keep(found):
            name = names.get(found.group(1), found.group(1))
            if is_later(name):
                lacks.add(name)
                return ""
            return found.group(0)
        return FUNCTION.sub(keep, part)

    # Up to its first #undef the header declares plain names and renames them; after that, names of the ABI.
    end = re.search(r"^\s*#\s*undef cu[A-Z]", text, re.MULTILINE).start()
    text = without(text[:end], renames) + without(text[end:], {})
    for name in LATER_TYPES:
        text = re.sub(rf"^typedef struct {name}_st \{{.*?^\}} \w+;", "", text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(rf"^typedef {name}_v1 {name};", "", text, flags=re.MULTILINE)
    for name in LATER_ERRORS:
        text = re.sub(rf"^\s*{name}\s*= \d+,", "", text, flags=re.MULTILINE)
    text = re.sub(r"^typedef struct CUgreenCtx_st \*CUgreenCtx;.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^typedef struct CUdevResourceDesc_st.*?\bCUdevResource;", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"#define CUDA_VERSION \d+", f"#define CUDA_VERSION {OLDEST}", text), lacks
