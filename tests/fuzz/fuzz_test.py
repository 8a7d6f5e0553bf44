"""Any bytes at all: a fixed number of changed inputs for every reader. scripts/fuzz tries as many as there is time for."""

import os

import harness
import seeds

MAKE = harness.BUILD / "tests" / "see" / "make_trace"
# At least as many as clang's fuzzer tries with sanitizers in a minute on two cores. (All that is made of a trace takes
# longer than to read it.)
CASES = {"": 30_000, "text": 100_000, "rmm": 50_000, "pytorch": 200_000, "cupool": 30_000, "report": 1200}
FEWER = int(os.environ.get("CUPOOL_FUZZ_CASES", "4000" if harness.SANITIZE else "0"))


def cases_of(form):
    return CASES[form] if FEWER == 0 else FEWER // 10 if form == "report" else FEWER


class FuzzTest(harness.TestCase):
    def feed(self, target, *forms):
        for (name, form), inputs in seeds.seeds(MAKE).items():
            if name != target or form not in forms:
                continue
            paths = []
            for number, content in enumerate(inputs):
                paths.append(self.scratch / f"{form}{number}")
                paths[-1].write_bytes(content)
            done = harness.run([harness.BUILD / "tests" / "fuzz" / f"fuzz_{name}", cases_of(form), *paths],
                               env={"FUZZ_FORM": form})
            self.assertEqual((0, f"{cases_of(form)} cases\n"), (done.code, done.out), f"{form}: {done.err[-2000:]}")

    def test_the_parsers_stand_a_fuzzer(self):
        self.feed("parsers", "")

    def test_the_readers_of_others_records_stand_a_fuzzer(self):
        self.feed("readers", "text", "rmm", "pytorch")

    def test_the_reader_of_traces_stands_a_fuzzer(self):
        self.feed("readers", "cupool")

    def test_what_is_made_of_a_trace_stands_a_fuzzer(self):
        self.feed("readers", "report")


if __name__ == "__main__":
    harness.main()
