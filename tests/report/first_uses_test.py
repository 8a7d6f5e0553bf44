"""Five first uses, as a new user meets them: no wrong figure, no dead end, no second reading. The fifth, a container of another
distribution, is in tests/package (scripts/test-roots)."""

import json
import re

import harness
import lab
from lab import MIB

COMMAND = harness.BUILD / "cupool"
CHURN = harness.victim("churn")


class FirstUsesTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.need_no_sanitizer("a preloaded name without a path has no place for the sanitizer's runtime before it")

    def test_the_first_line_of_the_readme_works_and_prints_what_the_readme_shows(self):
        page = (harness.SOURCE / "README.md").read_text()
        line = re.search(r"```\n(LD_PRELOAD=\S+) \./your_program\n```", page).group(1)
        self.assertEqual("LD_PRELOAD=libcupool.so", line)
        # As ldconfig would make it: the bare name is found in a folder that the loader searches.
        env = {"LD_PRELOAD": "libcupool.so", "LD_LIBRARY_PATH": f"{harness.BUILD}:{harness.BUILD}/sim"}
        done = harness.run([CHURN, 3000, 4194304], env=env, driver="sim")
        shown = re.findall(r"(?m)^cupool: .*$", page)
        self.assertEqual(len(shown), done.err.count("\n"), done.err)
        for expected, said in zip(shown, done.err.splitlines()):
            # The pool's segments are as large on any device; times and the process are not, nor how often work was pending.
            pattern = re.sub(r"\\\[\d+\\\]", r"\\[\\d+\\]", re.escape(expected).replace("\\ ", " "))
            pattern = re.sub(r"took \d+\\\.\d+ ms", r"took [\\d.]+ ms", pattern)
            pattern = re.sub(r"\d+ device", r"\\d+ device", pattern)
            self.assertRegex(said, f"^{pattern}$")

    def test_a_limit_that_is_hit_says_why_and_what_helps(self):
        steps = [f"a:x:{60 * MIB}", f"a:y:{60 * MIB}"]
        done = harness.run([COMMAND, "run", "--set", "limit=100M", "--", lab.PROGRAM, *steps], driver="sim")
        lines = done.err.splitlines()
        self.assertRegex(lines[0], r"^cupool: script\[\d+\]: out of memory on device 0: 60 MiB asked$")
        self.assertEqual("cupool:   because CUPOOL_LIMIT is 100 MiB, of which 60 MiB are in use: 60 MiB more is 20 MiB too much", lines[1])
        self.assertIn("cupool:   CUPOOL_LIMIT=120M lets it pass", lines)
        self.assertTrue(any(line.endswith("1 allocation failed: out of memory") for line in lines), done.err)
        done = harness.run([COMMAND, "run", "--set", "limit=120M", "--", lab.PROGRAM, *steps], driver="sim")
        self.assertEqual((0, ""), (done.code, done.out))
        self.assertNotIn("out of memory", done.err)

    def test_a_double_free_names_the_calls(self):
        done = harness.run([COMMAND, "run", "--set", "check=yes", "--set", "log=quiet", "--", harness.BUILD / "tests/aids/aids", "frees"], driver="sim")
        self.assertRegex(done.err, r"^cupool: (aids\[\d+\]): double free of 0x\w+, a block of 1000 bytes; freed again here:\ncupool: \1:     #0 frees_twice ")
        who = done.err.split(":")[1]
        self.assertIn(f"cupool:{who}:   freed before here:\ncupool:{who}:     #0 frees_twice ", done.err)
        self.assertIn(f"cupool:{who}:   allocated here:\ncupool:{who}:     #0 frees_twice ", done.err)

    def test_four_ranks_are_merged_into_one_table(self):
        for rank in range(4):
            env = {"OMPI_COMM_WORLD_RANK": str(rank)}
            words = ["run", "--json", "--set", f"stats_file={self.scratch}/rank-%r.json", "--", CHURN, 100, MIB]
            self.assertEqual(0, harness.run([COMMAND, *words], env=env, driver="sim").code)
        files = sorted(self.scratch.iterdir())
        table = harness.run([COMMAND, "merge", *files], driver="sim").out.splitlines()
        self.assertEqual(["rank", "0", "1", "2", "3", "all"], [line.split()[0] for line in table[1:]])
        # Equal ranks have equal figures.
        figures = [{k: json.loads(f.read_text())[k] for k in ("allocations", "frees", "peak_live_bytes", "peak_reserved_bytes")} for f in files]
        self.assertEqual([figures[0]] * 4, figures)
        merged = json.loads(harness.run([COMMAND, "merge", "--json", *files], driver="sim").out)
        self.assertEqual((4, 404), (merged["processes"], merged["allocations"]))


if __name__ == "__main__":
    harness.main()
