"""clang-tidy finds nothing in what changed, every lock is held where the annotations ask for it; and both checks can fail."""

import json
import os
import shutil
import subprocess

import harness

TIDY = harness.SOURCE / "scripts/tidy"

UNLOCKED = """
#include "base/lock.hpp"
cupool::Lock lock{cupool::Rank::kRegistry};
int guarded CUPOOL_GUARDED_BY(lock) = 0;
int read() { return guarded; }
"""
UNORDERED = """
#include "base/lock.hpp"
struct Two {
  cupool::Lock inner{cupool::Rank::kImports};
  cupool::Lock outer CUPOOL_ACQUIRED_BEFORE(inner){cupool::Rank::kImportsChanging};
  void take() { cupool::Guard first(inner); cupool::Guard second(outer); }
};
"""
MOVED = """
#include <string>
#include <utility>
std::string twice(std::string text) { std::string other = std::move(text); return other + text; }
"""


class TidyTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_no_sanitizer("the plain build looks at the same sources")
        self.need_native()
        if shutil.which("clang-tidy") is None or shutil.which("clang++") is None:
            self.skipTest("clang-tidy is not installed")

    def tidy(self, *words, script=TIDY, build=harness.BUILD):
        """The script's exit code and what it said."""
        done = subprocess.run([script, *words], env={**os.environ, "CUPOOL_TIDY_BUILD": str(build)}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def sample(self, text):
        """A tree with the script and one source of this text, and its build directory."""
        for name in ("scripts/tidy", ".clang-tidy", "src/base/lock.hpp", "src/base/held_locks.hpp", "src/base/lock_ranks.def",
                     "src/base/thread_annotations.hpp"):
            (self.scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(harness.SOURCE / name, self.scratch / name)
        source = self.scratch / "src/sample.cpp"
        source.write_text(text)
        command = f"c++ -std=c++20 -I{self.scratch}/src -c {source} -o sample.o"
        (self.scratch / "compile_commands.json").write_text(json.dumps([{"file": str(source), "directory": str(self.scratch), "command": command}]))
        return self.scratch / "scripts/tidy"

    def test_clang_tidy_finds_nothing_in_the_sources_that_changed(self):
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True, check=True).stdout
        if "version 14." not in version:
            self.skipTest("clang-tidy 14 is not here, and another version looks for other things")
        code, said = self.tidy("--changed", "3")
        self.assertEqual(0, code, said)

    def test_every_lock_is_held_where_the_annotations_ask_for_it(self):
        code, said = self.tidy("--locks")
        self.assertEqual(0, code, said)
        self.assertGreater(int(said.split()[0]), 20, said)

    def test_the_tidy_check_sees_a_use_after_a_move(self):
        code, said = self.tidy(script=self.sample(MOVED), build=self.scratch)
        self.assertEqual(1, code, said)
        self.assertIn("bugprone-use-after-move", said)

    def test_the_lock_check_sees_a_guarded_field_read_without_its_lock(self):
        code, said = self.tidy("--locks", script=self.sample(UNLOCKED), build=self.scratch)
        self.assertEqual(1, code, said)
        self.assertIn("requires holding mutex 'lock'", said)

    def test_the_lock_check_sees_a_lock_taken_under_one_that_is_taken_after_it(self):
        code, said = self.tidy("--locks", script=self.sample(UNORDERED), build=self.scratch)
        self.assertEqual(1, code, said)
        self.assertIn("must be acquired", said)


if __name__ == "__main__":
    harness.main()
