"""Good inputs for the fuzz targets, from which a fuzzer begins: of each target and form a list of bytes."""

import pickle
import subprocess
import tempfile
from pathlib import Path

import forms

PARSED = ["64K", "1.5GiB", "20%", "unlimited", "LIMIT=1G\nSTATS=json\nSTREAMS=fences", "MIN_BLOCK=777\nSMALL_LIMIT=1",
          "ONLY=a*,b?\nEXCEPT=c", '{"cupool":"0","devices":[{"device":0}],"x":1e9,"s":"\\u0041"}', "py*,*\npython3"]


def traces(make_trace):
    """Traces of cupool's, small but whole: a training, and traces that have every event there is, in any order."""
    with tempfile.TemporaryDirectory() as folder:
        out = []
        for how in (["400"], ["250", "hostile"], *(["300", "wild", str(seed)] for seed in (1, 2, 3))):
            path = Path(folder) / "trace"
            subprocess.run([make_trace, path, *how], check=True)
            out.append(path.read_bytes())
        return out


def seeds(make_trace):
    """(target, form) and what it begins with."""
    lines = forms.lives(30)
    return {("parsers", ""): [text.encode() for text in PARSED], ("readers", "text"): [forms.text(lines)],
            ("readers", "rmm"): [forms.rmm(lines)],
            ("readers", "pytorch"): [pickle.dumps(forms.snapshot(lines), protocol) for protocol in (2, 3, 4, 5)],
            ("readers", "cupool"): traces(make_trace), ("readers", "report"): traces(make_trace)}
