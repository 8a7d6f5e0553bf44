"""What the commands that read traces call the planted faults of a program: a leak, a double hold and a stall, at their lines."""

import re
import shutil
import subprocess
import sys

import harness

COMMAND = harness.BUILD / "cupool"
SOURCES = harness.SOURCE / "tests" / "report" / "leaky"


def line_of(file, words):
    """Where that stands, as the commands say it."""
    for number, line in enumerate((SOURCES / file).read_text().splitlines(), 1):
        if words in line:
            return f"{file}:{number})"
    raise AssertionError(f"{file} has no line with {words}")


class NamesTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.trace = self.scratch / "t"
        self.app = self.scratch / "here" / "app"
        self.app.parent.mkdir()

    def build(self):
        """The program, with lines."""
        done = subprocess.run([harness.COMPILER, "-O2", "-g", f"-I{harness.CUDA_INCLUDE}", *sorted(SOURCES.glob("*.cpp")), "-Wl,--build-id",
                               f"-L{harness.BUILD / 'sim'}", "-lcuda", "-o", self.app], capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr)

    def record(self, *program):
        done = harness.with_cupool(program or [self.app], env={"CUPOOL_TRACE": str(self.trace), "CUPOOL_STACKS": "16", "CUPOOL_STATS": "off"}, driver="sim")
        self.assertEqual((0, ""), (done.code, done.err))

    def ask(self, *words):
        done = harness.run([COMMAND, *words], driver="sim")
        self.assertEqual(0, done.code, done.err)
        if "libdw" in done.err:
            self.skipTest("there is no libdw")
        return done

    def paragraph(self, text, words):
        """The head of the first paragraph of a stack that has that, and whether it is the first of all."""
        parts = re.split(r"\n(?=  \S)", text)
        for part in parts:
            if words in part:
                return part
        raise AssertionError(f"{words} is not in\n{text}")

    def check_faults(self, *flags):
        """Each fault at its line."""
        leak = line_of("history.cpp", "the leak")
        grown = self.ask("diff", *flags, "--from", "peak", self.trace).out + self.ask("trace", "--at", "end", *flags, self.trace).out
        found = self.paragraph(grown, leak)
        self.assertRegex(found, r"in 20 blocks, pool\n")
        self.assertRegex(found, r"(?s)take.*keep.*remember.*forward.*step.*main")
        for number in (5, 7):
            self.assertIn("28.6 MiB in 1 block, pool", self.paragraph(grown, f"weights.cpp:{number})"))
        self.assertIn("weights.cpp:7)", line_of("weights.cpp", "the double hold"))
        stall = self.paragraph(self.ask("waits", *flags, self.trace).out, line_of("loss.cpp", "the stall"))
        self.assertRegex(stall, r"cuCtxSynchronize, synchronisation: .* in 40 calls")

    def test_a_leak_a_double_hold_and_a_stall_are_named_at_their_lines(self):
        self.build()
        self.record()
        self.check_faults()

    def test_a_stripped_program_with_its_symbols_apart_is_named_at_its_lines_on_another_machine_too(self):
        self.build()
        apart = self.scratch / "apart"
        apart.mkdir()
        subprocess.run(["objcopy", "--only-keep-debug", self.app, apart / "app.debug"], check=True)
        subprocess.run(["strip", self.app], check=True)
        self.record()
        without = self.ask("trace", "--at", "end", self.trace)
        self.assertNotIn("history.cpp", without.out)
        self.assertIn("has no lines", without.err)
        self.check_faults("--debug-path", apart)
        # Where the program is not, and by its build-id.
        identity = re.search(r"Build ID: (\w+)", subprocess.run(["readelf", "-n", self.app], capture_output=True, text=True, check=True).stdout)[1]
        shutil.rmtree(self.app.parent)
        self.assertIn("is not here", self.ask("trace", "--at", "end", self.trace).err)
        self.check_faults("--debug-path", apart)
        by_id = self.scratch / "ids"
        (by_id / ".build-id" / identity[:2]).mkdir(parents=True)
        (apart / "app.debug").rename(by_id / ".build-id" / identity[:2] / f"{identity[2:]}.debug")
        self.check_faults("--debug-path", by_id)

    def test_names_are_taken_from_no_other_build(self):
        self.build()
        self.record()
        subprocess.run([harness.COMPILER, "-x", "c++", "-g", "-", "-o", self.app], input="int main() { return 1; }", text=True, check=True)
        said = self.ask("trace", "--at", "end", self.trace)
        self.assertIn("is not the file that ran", said.err)
        self.assertNotIn(" main (", said.out)

    def test_a_leak_and_a_stall_of_a_python_program_are_named_at_their_lines(self):
        if not (3, 9) <= sys.version_info[:2] <= (3, 13):
            self.skipTest("this Python is not known")
        self.record(sys.executable, SOURCES / "leaky.py")
        leak = self.paragraph(self.ask("trace", "--at", "end", self.trace).out, line_of("leaky.py", "the leak"))
        self.assertRegex(leak, r"in 20 blocks, pool\n")
        self.assertRegex(leak, r"(?s)take .*remember .*step .*main .*<module> [^\n]*$")
        stall = self.paragraph(self.ask("waits", self.trace).out, line_of("leaky.py", "the stall"))
        self.assertRegex(stall, r"in 40 calls")


if __name__ == "__main__":
    harness.main()
