"""The cupool command: it says its version, and runs a program with the library in front, built or installed."""

import subprocess

import harness


class CommandTest(harness.TestCase):
    def run_through(self, command, *, env=None):
        """Runs the plain victim's maps through a cupool command."""
        return harness.run([command, "run", "--", "cat", "/proc/self/maps"],
                           env={"LD_PRELOAD": harness.preloaded(), **(env or {})})

    def test_the_command_says_its_version(self):
        done = harness.run([harness.BUILD / "cupool", "--version"])
        self.assertEqual(0, done.code)
        self.assertRegex(done.out, r"^cupool \d+\.\d+\.\d+")

    def test_the_command_puts_the_built_library_in_front(self):
        self.need_native()
        self.assertIn(str(harness.LIBRARY.resolve()), self.run_through(harness.BUILD / "cupool").out)

    def test_the_command_keeps_what_was_preloaded_before(self):
        self.need_native()
        other = harness.compile_shared(self.scratch, "libother.so", "int other(void) { return 1; }\n")
        maps = self.run_through(harness.BUILD / "cupool", env={"LD_PRELOAD": harness.preloaded(other)}).out
        self.assertIn("libother.so", maps)
        self.assertIn("libcupool.so", maps)

    def test_an_installed_command_finds_the_installed_library_under_any_prefix(self):
        self.need_native()
        for name in ("prefix", "a prefix with spaces"):
            prefix = self.scratch / name
            subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", prefix], check=True, capture_output=True)
            maps = self.run_through(prefix / "bin" / "cupool").out
            self.assertIn(str(prefix.resolve()), maps)
            self.assertNotIn(str(harness.LIBRARY), maps)

    def test_the_installed_description_for_pkg_config_names_the_header(self):
        self.need_native()
        prefix = self.scratch / "prefix"
        subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", prefix], check=True, capture_output=True)
        (description,) = prefix.rglob("cupool.pc")
        self.assertIn("Version: ", description.read_text())
        (config,) = prefix.rglob("cupoolConfig.cmake")
        (self.scratch / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(p C)\nfind_package(cupool REQUIRED)\nadd_executable(p p.c)\n"
            "target_link_libraries(p cupool::cupool)\n")
        (self.scratch / "p.c").write_text("#include <cupool/cupool.h>\nint main(void) { return 0; }\n")
        folder = self.scratch / "user"
        subprocess.run(["cmake", "-S", self.scratch, "-B", folder, f"-Dcupool_DIR={config.parent}"], check=True, capture_output=True)
        subprocess.run(["cmake", "--build", folder], check=True, capture_output=True)

    def test_the_command_gives_the_programs_exit_code(self):
        self.need_native()
        self.assertEqual(7, harness.run([harness.BUILD / "cupool", "run", "--", "sh", "-c", "exit 7"]).code)

    def test_a_program_that_does_not_exist_gives_the_shells_exit_code(self):
        done = harness.run([harness.BUILD / "cupool", "run", "--", "/no/such/program"])
        self.assertEqual(127, done.code)
        self.assertIn("/no/such/program", done.err)

    def test_a_wrong_use_of_the_command_is_told(self):
        done = harness.run([harness.BUILD / "cupool", "no-such-verb"])
        self.assertEqual(2, done.code)
        self.assertNotEqual("", done.err)


if __name__ == "__main__":
    harness.main()
