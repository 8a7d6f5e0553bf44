"""What users know from other allocators: memory filled as it comes and goes, bad frees told with their stack."""

import re

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

    def test_a_bad_free_is_told_with_the_function_that_made_it(self):
        result = run("frees", CUPOOL_CHECK="1")
        self.assertEqual("twice: 1\ninside: 1\nunknown: 1\n", result.out)
        reports = result.err.split("cupool: free of ")[1:]
        self.assertEqual(3, len(reports), result.err)
        for report, said, culprit in zip(reports, ("freed twice", "100 bytes inside a block of 1000", "no allocation"),
                                         ("frees_twice", "frees_inside", "frees_the_unknown")):
            self.assertIn(said, report)
            self.assertIn(culprit, report)
            self.assertNotIn("libcupool.so", report)

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
