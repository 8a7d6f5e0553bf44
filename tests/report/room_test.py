"""A call that the driver refuses for want of memory is repeated, after idle memory was released."""

import harness

CASES = ("stack", "heap", "graph")
# cupool's own, made before the first memory is asked for, by the function's plain name.
CALLS_BEFORE = {"cuEventCreate": 24}
SMALL = {"CUPOOL_SIM_MEMORY": str(512 << 20)}


class RoomTest(harness.TestCase):
    def names(self):
        """Every function that the table marks, per-thread forms too."""
        return harness.run([harness.victim("room_table")], driver="unit").out.split()

    def answers(self, name, rules, env=None, more=()):
        """The four answers of the victim, with these faults under the function's plain name."""
        plain = name.removesuffix("_ptsz")
        before = CALLS_BEFORE.get(plain, 0)
        faults = ",".join(f"{plain}@{before + when}={code}" for when, code in rules.items())
        done = harness.with_cupool([harness.victim("room_table"), name, *more],
                                   env={"CUPOOL_SIM_FAULTS": faults, **(env or {})})
        self.assertEqual(0, done.code, f"{name}: {done.err}")
        return done.out.split()

    def test_every_marked_call_is_repeated_once_if_something_was_released_and_else_not_at_all(self):
        names = self.names()
        self.assertGreater(len(names), 100)
        # Each answer tells how many calls reached the driver before it.
        rules = {1: 2, 2: 46, 3: 2, 4: 2, 5: 2, 6: 46}
        # (The second stream is cupool's own, over which memory goes back.)
        of_streams = {1: 2, 3: 46, 4: 2, 5: 2, 6: 2, 7: 46}
        wrong = {name: got for name in names
                 if (got := self.answers(name, of_streams if name == "cuStreamCreate" else rules)) != ["46", "2", "2", "46"]}
        self.assertEqual({}, wrong)

    def test_without_the_pool_a_refusal_is_the_answer(self):
        got = self.answers("cuLaunchKernel", {1: 2, 2: 46}, {"CUPOOL_BACKEND": "off"})
        self.assertEqual(["2", "46"], got[:2])

    def test_memory_that_is_done_is_released_while_a_stream_captures_too(self):
        for name in ("cuLaunchKernel", "cuEventCreate", "cuGraphInstantiateWithFlags", "cuMemAllocAsync"):
            self.assertEqual(["46"], self.answers(name, {1: 2, 2: 46}, more=["capture"]), name)

    def test_a_launch_without_registers_is_not_repeated(self):
        self.assertEqual(["701", "46"], self.answers("cuLaunchKernel", {1: 701, 2: 46})[:2])

    def test_freed_memory_is_there_for_the_stack_the_heap_and_the_graphs_of_the_driver(self):
        for case in CASES:
            bare = harness.run([harness.victim("room"), case], env=SMALL)
            self.assertEqual((0, "ok\n"), (bare.code, bare.out), f"{case}: {bare.err}")
            done = harness.with_cupool([harness.victim("room"), case], env=SMALL)
            self.assertEqual((0, "ok\n"), (done.code, done.out), f"{case}: {done.err}")


if __name__ == "__main__":
    harness.main()
