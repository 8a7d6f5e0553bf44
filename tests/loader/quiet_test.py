"""In a process without CUDA nothing changes: no output, no libcuda, no file, no thread, no library of ours but one."""

import os
import re
import shutil
import subprocess
import tempfile

import harness

PROGRAMS = {
    "bash": ["bash", "-c", "x=1; echo $((x + 1)); type -t ls"],
    "python3": ["/usr/bin/python3", "-c", "import ctypes, threading, json; print(json.dumps([1, 2]))"],
    "ls": ["ls", "-l", "/usr"],
    "git": ["git", "hash-object", "--stdin"],
    "perl": ["perl", "-e", 'print join(",", map { $_ * 2 } 1 .. 5), "\\n"'],
}


class QuietTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()

    def assert_unchanged(self, name, library=harness.LIBRARY):
        """Output, errors and exit code are as bare, and the directory it ran in stays empty."""
        if shutil.which(PROGRAMS[name][0]) is None:
            self.skipTest(f"{name} is not installed")
        home = {"HOME": str(self.scratch), "TMPDIR": str(self.scratch)}
        bare = harness.run(PROGRAMS[name], env=home, cwd=self.scratch, stdin="text\n")
        preloaded = harness.run(PROGRAMS[name], preload=[library], env=home, cwd=self.scratch, stdin="text\n")
        self.assert_same_run(bare, preloaded)
        self.assertEqual(0, bare.code)
        self.assertEqual([], os.listdir(self.scratch))

    def noisy(self, body):
        """A library whose constructor does what ours must not."""
        with tempfile.TemporaryDirectory() as elsewhere:
            source = "#include <fcntl.h>\n#include <stdio.h>\n__attribute__((constructor)) static void noise(void) { %s }\n"
            yield harness.compile_shared(elsewhere, "libnoisy.so", source % body)

    def test_the_quiet_check_sees_output_and_files(self):
        for body in ('fputs("hello\\n", stderr);', 'puts("hello");', 'open("made", O_CREAT | O_WRONLY, 0600);'):
            for library in self.noisy(body):
                with self.assertRaises(AssertionError, msg=body):
                    self.assert_unchanged("ls", library)

    def test_bash_runs_as_without_us(self):
        self.assert_unchanged("bash")

    def test_python_runs_as_without_us(self):
        self.assert_unchanged("python3")

    def test_ls_runs_as_without_us(self):
        self.assert_unchanged("ls")

    def test_git_runs_as_without_us(self):
        self.assert_unchanged("git")

    def test_perl_runs_as_without_us(self):
        self.assert_unchanged("perl")

    def test_a_process_without_cuda_maps_our_library_and_no_libcuda(self):
        self.need_no_sanitizer("the sanitizer's runtime brings libstdc++ along")
        maps = harness.with_cupool(["cat", "/proc/self/maps"]).out
        self.assertIn(str(harness.LIBRARY.resolve()), maps)
        self.assertNotRegex(maps, r"libcuda|libnvidia|libunwind|libstdc\+\+")

    def test_a_process_without_cuda_has_one_thread_and_the_same_open_files(self):
        self.need_no_sanitizer("the thread sanitizer has a thread of its own", "thread")
        threads = re.search(r"Threads:\s+(\d+)", harness.with_cupool(["cat", "/proc/self/status"]).out)
        self.assertEqual("1", threads.group(1))
        files = ["/usr/bin/python3", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"]
        self.assertEqual(harness.run(files).out, harness.with_cupool(files).out)

    def test_a_process_without_cuda_makes_no_system_call_of_ours(self):
        self.need_no_sanitizer("the sanitizer's runtime makes system calls of its own")
        if shutil.which("strace") is None:
            self.skipTest("strace is not installed")
        done = subprocess.run(["strace", "-f", "-E", f"LD_PRELOAD={harness.LIBRARY}", "/bin/true"],
                              capture_output=True, text=True, check=False)
        if "+++ exited with 0" not in done.stderr:
            self.skipTest("strace may not trace here")
        # From our library's own mapping on, only the loader works on it: opens, maps, protects, closes.
        self.assertNotRegex(done.stderr, r"(?m)^(?:\[pid +\d+\] )?(?:clone|fork|vfork|socket|pipe)\w*\(|O_CREAT|\"/proc/")

    def test_junk_settings_do_not_disturb_a_process_without_cuda(self):
        junk = {"CUPOOL_BACKEND": "junk", "CUPOOL_NO_SUCH_OPTION": "1", "CUPOOL_LIMIT": "-"}
        self.assert_same_run(harness.run(["ls", "/"]), harness.with_cupool(["ls", "/"], env=junk))


if __name__ == "__main__":
    harness.main()
