"""What users know from other allocators: memory filled as it comes and goes, bad frees told with their stack."""

import re
import shutil
import subprocess

import harness

AIDS = harness.BUILD / "tests" / "aids" / "aids"


def run(mode, **env):
    return harness.with_cupool([AIDS, mode], env={"CUPOOL_STATS": "off", **env})


class AidsTest(harness.TestCase):
    def values(self, kind, **env):
        """The bytes of every block of that kind, each 'mixed' or two digits."""
        result = run("fill", **env)
        self.assertEqual((0, ""), (result.code, result.err))
        return set(re.findall(rf"^{kind}[^:]*: (.*)$", result.out, re.MULTILINE))

    def test_a_new_block_holds_what_the_user_wants_fresh_and_recycled(self):
        for kind in ("fresh", "recycled"):
            self.assertEqual({"a5"}, self.values(kind, CUPOOL_FILL="alloc:0xA5"))
        self.assertEqual({"a5 a5"}, self.values("managed", CUPOOL_FILL="alloc:0xA5,free:0x5A"))

    def test_an_old_block_is_written_over_after_its_last_work(self):
        self.assertEqual({"5a"}, self.values("recycled", CUPOOL_FILL="free:0x5A"))

    def test_without_filling_a_recycled_block_holds_what_it_held(self):
        self.assertIn("11", self.values("recycled"))

    def test_with_zero_every_block_is_clear(self):
        for kind in ("fresh", "recycled"):
            self.assertEqual({"00"}, self.values(kind, CUPOOL_ZERO="1"))
        self.assertEqual({"00 00"}, self.values("managed", CUPOOL_ZERO="1"))

    def test_filling_works_with_fences_and_without_cutting(self):
        for env in ({"CUPOOL_STREAMS": "fences"}, {"CUPOOL_SPLIT": "0"}):
            self.assertEqual({"a5"}, self.values("recycled", CUPOOL_FILL="alloc:0xA5,free:0x5A", **env))

    def test_a_value_that_cannot_be_a_byte_is_said_and_ignored(self):
        result = run("frees", CUPOOL_FILL="alloc:300,free:0x5A")
        self.assertIn("CUPOOL_FILL=alloc:300,free:0x5A", result.err)

    def bad_frees(self, program):
        """What is said of each of the three, with whitespace in one piece."""
        result = harness.with_cupool([program, "frees"], env={"CUPOOL_STATS": "off", "CUPOOL_CHECK": "1"})
        self.assertEqual("twice: 1\ninside: 1\nunknown: 1\n", result.out)
        reports = re.split(r"(?m)^cupool: \S+\[\d+\]: (?=free of|double free)", result.err)[1:]
        self.assertEqual(3, len(reports), result.err)
        self.assertNotIn("libcupool.so", result.err)
        return reports

    def test_a_bad_free_is_told_with_the_function_that_made_it(self):
        self.need_no_sanitizer("a sanitized program carries its lines, and is told with them")
        for report, said, culprit in zip(self.bad_frees(AIDS),
                                         (r"double free of 0x\w+, a block of 1000 bytes; freed again here:",
                                          r"an interior pointer: it is 100 bytes inside a block of 1000 bytes at 0x\w+; freed here:",
                                          r"never allocated, or not through this library; freed here:"),
                                         ("frees_twice", "frees_inside", "frees_the_unknown")):
            self.assertRegex(report, said)
            self.assertRegex(report.splitlines()[1], rf"#0 {culprit} in .*aids; for the line: addr2line -Cfe .*aids 0x[0-9a-f]+$")

    def test_the_command_that_a_bad_free_names_finds_its_line(self):
        self.need_native()
        self.need_no_sanitizer("a sanitized program carries its lines, and is told with them")
        for report in self.bad_frees(AIDS):
            command = re.search(r"#0 .*; for the line: (addr2line .*)$", report, re.MULTILINE).group(1)
            found = subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout
            self.assertIn(re.search(r"#0 (\w+)", report).group(1), found)

    def test_a_double_free_is_told_with_file_and_line_of_all_three_calls(self):
        self.need_native()
        if not shutil.which("ldconfig") or "libdw.so.1" not in subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout:
            self.skipTest("no libdw here")
        lines = (harness.SOURCE / "tests/aids/aids.cpp").read_text().splitlines()
        report = self.bad_frees(harness.BUILD / "tests" / "aids" / "aids_lines")[0]
        places = [int(n) for n in re.findall(r"#0 frees_twice at \S*aids\.cpp:(\d+)", report)]
        said = [lines[n - 1] for n in places]
        self.assertEqual(3, len(said), report)
        for text, call in zip(said, ('"twice: %d', "cuMemFree(block)", "cuMemAlloc(&block, 1000)")):
            self.assertIn(call, text)
        self.assertLess(report.index("freed again here"), report.index("freed before here"))
        self.assertLess(report.index("freed before here"), report.index("allocated here"))

    def test_a_block_that_ended_with_its_context_was_not_freed_twice(self):
        result = harness.with_cupool([AIDS, "late"], env={"CUPOOL_STATS": "off", "CUPOOL_CHECK": "1"})
        self.assertEqual("late: 1\n", result.out)
        self.assertRegex(result.err, r"^cupool: \S+: free of 0x\w+, a block of 6000 bytes that ended with its context; freed here:\n")
        self.assertIn(":   allocated here:\n", result.err)
        self.assertNotIn("freed before here", result.err)

    def test_every_line_about_a_bad_free_names_the_program_the_process_and_the_rank(self):
        for rank, said in ({}, ""), ({"SLURM_PROCID": "3"}, " rank 3"):
            result = harness.with_cupool([AIDS, "frees"], env={"CUPOOL_STATS": "off", "CUPOOL_CHECK": "1", **rank})
            lines = result.err.splitlines()
            self.assertGreater(len(lines), 9, result.err)
            (who,) = {re.match(r"cupool: (.*?): ", line).group(1) for line in lines}
            self.assertRegex(who, rf"^{AIDS.name}\[\d+\]{said}$")

    def test_without_check_a_bad_free_is_only_answered(self):
        result = run("frees")
        self.assertEqual(("twice: 1\ninside: 1\nunknown: 1\n", ""), (result.out, result.err))

    def test_under_a_tool_that_watches_memory_the_pool_steps_back_and_says_so_once(self):
        result = run("fill", NV_SANITIZER_INJECTION_PORT_BASE="49152")
        self.assertEqual(0, result.code)
        self.assertEqual("cupool: compute-sanitizer is watching: every block is a driver allocation of its own\n",
                         result.err)


if __name__ == "__main__":
    harness.main()
