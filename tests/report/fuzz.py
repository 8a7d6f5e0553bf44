"""Builds the fuzz target with clang and runs it for CUPOOL_FUZZ_SECONDS (60); exit code 77 where clang has no fuzzer."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SEEDS = ["64K", "1.5GiB", "20%", "unlimited", "LIMIT=1G\nSTATS=json\nSTREAMS=fences", "MIN_BLOCK=777\nSMALL_LIMIT=1",
         "ONLY=a*,b?\nEXCEPT=c", '{"cupool":"0","devices":[{"device":0}],"x":1e9,"s":"\\u0041"}', "py*,*\npython3"]
SKIPPED = 77


def main():
    """The test's whole life; the corpus lives and dies with it."""
    compiler, program, source, generated, *files = sys.argv[1:]
    flags = ["-std=c++20", "-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    build = [compiler, *flags, f"-I{source}", f"-I{generated}", *files, "-o", program]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        print(built.stderr)
        missing = "cannot find" in built.stderr or "unsupported option" in built.stderr
        return SKIPPED if missing and "fuzzer" in built.stderr else 1
    seconds = os.environ.get("CUPOOL_FUZZ_SECONDS", "60")
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS):
            (Path(corpus) / str(number)).write_text(seed)
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # a text option is kept for good
        run = [program, f"-max_total_time={seconds}", "-rss_limit_mb=4096", "-max_len=512", "-close_fd_mask=2", corpus]
        return subprocess.run(run, env=environment, cwd=corpus, check=False).returncode


sys.exit(main())
