"""On a GPU: programs of the CUDA runtime and of the frameworks show exactly the allocations they made.

A framework allocates for itself too, so it runs twice with different amounts and the difference must fit.
"""

import subprocess
import sys

import harness

TORCH = "import torch; x = [torch.zeros(1000 + i, device='cuda') for i in range({count})]; torch.cuda.synchronize(); " \
        "print(len(x))"
CUPY = "import cupy; cupy.cuda.set_allocator(None); x = [cupy.cuda.alloc(1000 + i) for i in range({count})]; print(len(x))"


class FrameworksTest(harness.TestCase):
    def counted(self, command, **env):
        """Runs under cupool, switched off and as by default; the library's own counters each time."""
        for backend in ("off", ""):
            settings = {"CUPOOL_STATS": "json", **env}
            if backend:
                settings["CUPOOL_BACKEND"] = backend
            result = harness.with_cupool(command, env=settings)
            self.assertEqual(0, result.code, result.err)
            yield result, result.take_counters()[-1]

    def runtime_is_counted(self, form):
        program = harness.BUILD / "tests" / "gpu" / f"runtime_{form}"
        if not program.exists():
            self.skipTest("built without the CUDA runtime")
        for result, counters in self.counted([program]):
            tally = result.tally("runtime")
            self.assertEqual((tally["allocs"], tally["frees"]), (counters["allocations"], counters["frees"]))

    def framework_is_counted(self, module, program, **env):
        python = sys.executable
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0:
            self.skipTest(f"no {module} here")
        few = [c for _, c in self.counted([python, "-c", program.format(count=5)], **env)]
        many = [c for _, c in self.counted([python, "-c", program.format(count=25)], **env)]
        for less, more in zip(few, many):
            self.assertEqual(20, more["allocations"] - less["allocations"])

    def test_a_program_of_the_static_runtime_has_every_allocation_counted(self):
        self.runtime_is_counted("static")

    def test_a_program_of_the_shared_runtime_has_every_allocation_counted(self):
        self.runtime_is_counted("shared")

    def memory_is_of_the_current_context(self, form):
        program = harness.BUILD / "tests" / "gpu" / f"current_runtime_{form}"
        if not program.exists():
            self.skipTest("built without the CUDA runtime")
        bare = harness.run([program])
        self.assertIn("in the current context", bare.out)
        self.assert_same_run(bare, harness.with_cupool([program], env={"CUPOOL_STATS": "off"}))

    def test_memory_is_of_the_current_context_in_a_program_of_the_static_runtime(self):
        self.memory_is_of_the_current_context("static")

    def test_memory_is_of_the_current_context_in_a_program_of_the_shared_runtime(self):
        self.memory_is_of_the_current_context("shared")

    def test_pytorch_has_every_allocation_counted(self):
        self.framework_is_counted("torch", TORCH, PYTORCH_NO_CUDA_MEMORY_CACHING="1")

    def test_cupy_has_every_allocation_counted(self):
        self.framework_is_counted("cupy", CUPY)


if __name__ == "__main__":
    harness.main()
