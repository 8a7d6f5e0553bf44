"""What the statistics cost, with and without them in one run. As a test it only shows that both programs work; run by hand
(cost_test.py --measure) it prints nanoseconds a pair."""

import sys

import harness

HERE = harness.BUILD / "tests" / "report"


def measure(*words):
    """Nanoseconds a pair by size, with counting and without; the best of several turns, taken in turns."""
    best = {}
    for _ in range(1 if words else 5):
        for program in ("stats_cost", "stats_cost_without"):
            done = harness.run([HERE / program, *words])
            if done.code != 0:
                raise AssertionError(done.err)
            for line in done.out.splitlines():
                size, spent = line.split()
                key = (int(size), program)
                best[key] = min(best.get(key, 1e9), float(spent))
    return best


class CostTest(harness.TestCase):
    def test_pairs_run_with_and_without_statistics(self):
        best = measure("--smoke")
        self.assertEqual(6, len(best))
        self.assertTrue(all(spent > 0 for spent in best.values()))


if __name__ == "__main__":
    if "--measure" in sys.argv:
        result = measure()
        for size in sorted({size for size, _ in result}):
            counted, bare = result[size, "stats_cost"], result[size, "stats_cost_without"]
            print(f"{size:>8} bytes: {counted:6.2f} ns with, {bare:6.2f} ns without, {counted - bare:5.2f} ns for the statistics")
    else:
        harness.main()
