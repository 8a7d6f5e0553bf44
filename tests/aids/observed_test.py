"""Every call of the program is told once to whoever listens, with its result, whichever entry point it came to."""

import re

import harness

OBSERVED = harness.BUILD / "tests" / "aids" / "observed_library" / "libcupool.so"
PROGRAM = harness.BUILD / "tests" / "aids" / "observed"


class ObservedTest(harness.TestCase):
    def steps(self, **env):
        """For each call: what must be told, its name, its result, and the events that were told as lists of words."""
        result = harness.run([PROGRAM], preload=[OBSERVED], env={"CUPOOL_STATS": "off", **env})
        self.assertEqual((0, "done\n"), (result.code, result.out), result.err)
        found = re.findall(r"^> (\w+) (\w+)\n((?:\w.*\n)*)= (\d+)$", result.err, re.MULTILINE)
        self.assertEqual(result.err.count("> "), len(found), result.err)
        return [(event, call, int(code), [line.split() for line in told.splitlines()]) for event, call, told, code in found]

    def check(self, steps):
        for event, call, code, told in steps:
            expected = [] if event == "nothing" else [(event, call, code)]
            self.assertEqual(expected, [(name, by, int(result)) for name, by, result, *_ in told], call)
            if event in ("allocated", "freed", "failed"):
                self.assertEqual(event == "failed", code != 0, call)

    def test_each_call_is_told_once_with_its_result(self):
        self.check(self.steps())

    def test_each_call_is_told_once_where_the_driver_serves(self):
        self.check(self.steps(CUPOOL_BACKEND="off"))

    def test_each_call_is_told_once_whichever_allocator_serves(self):
        for env in ({"CUPOOL_BACKEND": "native"}, {"CUPOOL_SPLIT": "no"}, {"CUPOOL_SEGMENTS": "mapped"}, {"CUPOOL_STREAMS": "fences"}):
            with self.subTest(**env):
                self.check(self.steps(**env))

    def test_what_is_freed_is_what_was_allocated(self):
        live = {}
        for _, _, code, told in self.steps():
            for event, call, _, address, size in told:
                if event == "allocated":
                    self.assertNotIn(address, live)
                    live[address] = size
                elif event == "freed":
                    self.assertIn(size, (live.pop(address), "0"), call)
        self.assertEqual({}, live)


if __name__ == "__main__":
    harness.main()
