"""Every benchmark runs to its end, bare and under cupool, and measures the same things in both. No figure is judged."""

import json

import harness


class SmokeTest(harness.TestCase):
    def measured(self, name):
        """The names of what the benchmark measured, bare and under cupool; each figure must be a real one."""
        command = [harness.BUILD / "tests" / "bench" / name, "--smoke", "--json"]
        names = []
        for result in (harness.run(command), harness.with_cupool(command)):
            self.assertEqual(0, result.code, result.err)
            rows = json.loads(result.out)["rows"]
            for row in rows:
                self.assertLessEqual(row["low"], row["median"])
                self.assertLessEqual(row["median"], row["high"])
            timed = [row for row in rows if not row["name"].startswith("host memory")]
            for row in timed:
                self.assertGreater(row["median"], 0, row["name"])
            names.append([row["name"] for row in timed])
        self.assertEqual(names[0], names[1])
        return names[0]

    def test_the_benchmark_of_pairs_runs_bare_and_under_cupool(self):
        names = self.measured("pairs")
        self.assertIn("pair 64 MiB", names)
        self.assertIn("producer/consumer pair", names)

    def test_the_benchmark_of_events_runs(self):
        done = harness.run([harness.BUILD / "tests" / "bench" / "events", "--smoke"])
        self.assertEqual(0, done.code, done.err)
        self.assertIn("an event", done.out)

    def test_the_benchmark_of_launches_runs_bare_and_under_cupool(self):
        names = self.measured("launch")
        self.assertIn("1 thread, 1 MiB: cuMemAlloc / alone", names)

    def test_the_benchmark_of_what_grows_runs_bare_and_under_cupool(self):
        names = self.measured("growth")
        self.assertIn("blocks live: pair, dearest / cheapest", names)
        self.assertIn("threads asleep: more of 24 MiB, dearest / cheapest", names)

    def test_the_benchmark_of_the_drivers_own_calls_runs_bare_and_under_cupool(self):
        names = self.measured("driver_costs")
        self.assertIn("64 MiB mapped in 16: create, map, access", names)


if __name__ == "__main__":
    harness.main()
