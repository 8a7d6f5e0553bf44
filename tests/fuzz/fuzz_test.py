"""Any bytes at all: a fixed number of changed inputs for every reader. scripts/fuzz tries as many as there is time for."""

import os

import harness
import seeds

MAKE = harness.BUILD / "tests" / "see" / "make_trace"
# A second or two each.
CASES = int(os.environ.get("CUPOOL_FUZZ_CASES", "4000" if harness.SANITIZE else "10000"))


class FuzzTest(harness.TestCase):
    def feed(self, target):
        for (name, form), inputs in seeds.seeds(MAKE).items():
            if name != target:
                continue
            paths = []
            for number, content in enumerate(inputs):
                paths.append(self.scratch / f"{form}{number}")
                paths[-1].write_bytes(content)
            # (All that is made of a trace takes longer than to read it.)
            cases = CASES // 10 if form == "report" else CASES
            done = harness.run([harness.BUILD / "tests" / "fuzz" / f"fuzz_{name}", cases, *paths], env={"FUZZ_FORM": form})
            self.assertEqual((0, f"{cases} cases\n"), (done.code, done.out), f"{form}: {done.err[-2000:]}")

    def test_the_parsers_stand_a_fuzzer(self):
        self.feed("parsers")

    def test_the_readers_of_recorded_programs_stand_a_fuzzer(self):
        self.feed("readers")


if __name__ == "__main__":
    harness.main()
