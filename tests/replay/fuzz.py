"""Builds the fuzz target with clang and runs it on each form for a quarter of CUPOOL_FUZZ_SECONDS (60); 77 where clang has no fuzzer."""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import forms

SKIPPED = 77


def seeds():
    """A good file of each form."""
    lines = forms.lives(30)
    snapshots = [pickle.dumps(forms.snapshot(lines), protocol) for protocol in (2, 3, 4)]
    return {"text": [forms.text(lines)], "rmm": [forms.rmm(lines)], "pytorch": snapshots, "cupool": forms.traces()}


def main():
    """The test's whole life; the corpus lives and dies with it."""
    compiler, program, source, generated, *files = sys.argv[1:]
    flags = ["-std=c++20", "-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    built = subprocess.run([compiler, *flags, f"-I{source}", f"-I{generated}", *files, "-o", program], capture_output=True, text=True, check=False)
    if built.returncode != 0:
        print(built.stderr)
        missing = "cannot find" in built.stderr or "unsupported option" in built.stderr
        return SKIPPED if missing and "fuzzer" in built.stderr else 1
    seconds = max(int(os.environ.get("CUPOOL_FUZZ_SECONDS", "60")) // 4, 1)
    for form, good in seeds().items():
        with tempfile.TemporaryDirectory() as corpus:
            for number, seed in enumerate(good):
                (Path(corpus) / str(number)).write_bytes(seed)
            run = [program, f"-max_total_time={seconds}", "-rss_limit_mb=4096", "-max_len=8192", "-close_fd_mask=1", corpus]
            if code := subprocess.run(run, env={**os.environ, "FUZZ_FORM": form}, cwd=corpus, check=False).returncode:
                return code
    return 0


sys.exit(main())
