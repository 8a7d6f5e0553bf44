"""The library builds with the headers of every CUDA Toolkit since 12.0: what they lack, src/cuda/later.hpp declares."""

import collections
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import driver_api
import harness
import old_headers


class OldHeadersTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        text, self.lacks = old_headers.old_header(harness.CUDA_INCLUDE)
        (self.scratch / "cuda.h").write_text(text)

    def errors(self, source, *flags):
        """What the compiler says about a source file with the older header."""
        command = [harness.COMPILER, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fno-exceptions", f"-I{harness.SOURCE / 'src'}",
                   f"-I{harness.SOURCE / 'include'}", f"-I{harness.BUILD / 'generated'}", "-isystem", self.scratch,
                   "-isystem", harness.BUILD / "headers", *(flags or ["-fsyntax-only"]), source]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    def test_the_library_compiles_with_headers_of_cuda_12_0(self):
        sources = sorted(path for folder in ("cuda", "hooks") for path in (harness.SOURCE / "src" / folder).rglob("*.cpp"))
        # What many of them include is parsed once.
        included = collections.Counter(header for source in sources
                                       for header in re.findall(r'^#include ("[^"]+\.hpp")', source.read_text(), re.MULTILINE))
        common = self.scratch / "common.hpp"
        common.write_text("".join(f"#include {header}\n" for header, count in included.items() if count >= 4))
        self.assertEqual("", self.errors(common, "-x", "c++-header", "-o", f"{common}.gch"))
        with ThreadPoolExecutor(2) as pool:
            self.assertEqual("", "".join(pool.map(lambda source: self.errors(source, "-fsyntax-only", "-include", common), sources)))

    def test_the_older_headers_lack_what_came_after_them(self):
        for name in ("cuCtxRecordEvent", "cuGreenCtxCreate", "cuMemcpyBatchAsync_v2", "cuMemAdvise_v2", "cuCtxSynchronize_v2"):
            self.assertIn(name, self.lacks)
        for name in ("cuMemAlloc_v2", "cuMemAdvise", "cuLaunchKernelEx", "cuGetProcAddress_v2"):
            self.assertNotIn(name, self.lacks)
        declared = driver_api.declared(harness.COMPILER, self.scratch)
        self.assertEqual(set(), self.lacks & set(declared))
        source = self.scratch / "sample.cpp"
        source.write_text("#include <cuda.h>\nCUgreenCtx green;\n")
        self.assertIn("CUgreenCtx", self.errors(source))


if __name__ == "__main__":
    harness.main()
