"""But for its speed a program cannot tell that cupool is there: hundreds of questions, the same answers."""

import difflib
import re

import harness

QUESTIONS = harness.BUILD / "tests" / "differential" / "questions"


# What docs/mapped.md lists.
LOST_BY_MAPPING = re.compile(r"^shared, .*(SYNC_MEMOPS|P2P_TOKENS)")


class DifferentialTest(harness.TestCase):
    def assert_same_answers(self, env=None, but_for=None):
        bare = harness.run([QUESTIONS])
        pooled = harness.with_cupool([QUESTIONS], env={"CUPOOL_STATS": "off", **(env or {})})
        self.assertEqual((0, ""), (bare.code, bare.err), bare.out[-2000:])
        self.assertGreater(len(bare.out.splitlines()), 1000)
        both = [[line for line in answers.out.splitlines() if but_for is None or not but_for.search(line)]
                for answers in (bare, pooled)]
        self.assertGreater(len(both[0]), 1000)
        difference = list(difflib.unified_diff(*both, "bare", "pooled", n=0))
        self.assertEqual([], difference[:60], f"{len(difference)} lines in all")
        self.assertEqual(0, pooled.code, pooled.err)

    def test_every_question_has_the_same_answer_with_the_pool(self):
        self.assert_same_answers()

    def test_every_question_has_the_same_answer_without_cutting(self):
        self.assert_same_answers({"CUPOOL_SPLIT": "0"})

    def test_every_question_but_those_that_are_listed_has_the_same_answer_with_mapped_segments(self):
        self.assert_same_answers({"CUPOOL_SEGMENTS": "mapped"}, but_for=LOST_BY_MAPPING)

    def test_every_question_has_the_same_answer_with_fences_alone(self):
        self.assert_same_answers({"CUPOOL_STREAMS": "fences"})

    def test_every_question_has_the_same_answer_when_switched_off(self):
        self.assert_same_answers({"CUPOOL_BACKEND": "off"})


if __name__ == "__main__":
    harness.main()
