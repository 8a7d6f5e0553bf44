"""A few hundred runs of the torture victim; scripts/seeds runs as many more as one likes."""

import harness
import runs


class Seeds(harness.TestCase):
    """The oracle's word on the pool, and on the pool with one rule left out."""

    def expect_none(self, jobs):
        found = runs.findings(jobs, enough=5)
        self.assertFalse(found, "\n".join(map(str, found)))

    def expect_caught(self, rule, jobs):
        """Some run must end with a hazard; the rule is then known to be needed, and to be tested."""
        for job in jobs:
            job.preload = [runs.OBSERVER, runs.WITHOUT]
            job.environment["WITHOUT_RULE"] = rule
            code, _ = runs.run_job(job)
            if code == runs.HAZARD:
                return
        self.fail(f"no run was caught without {rule}")

    def test_the_torture_victim_is_a_valid_program(self):
        self.expect_none(runs.bare_jobs(0, 46))

    def test_the_oracle_stays_silent_over_seeded_runs(self):
        self.expect_none(runs.seeded_jobs(0, 230))

    def test_memory_stays_right_whichever_driver_call_fails(self):
        self.expect_none(runs.fault_jobs(0, 224))


if __name__ == "__main__":
    harness.main()
