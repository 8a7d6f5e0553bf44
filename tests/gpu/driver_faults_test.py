"""The programs that show faults of the driver (docs/driver-reports.md) find what there is to find, and nothing else."""

import re

import harness

PROGRAMS = harness.BUILD / "tests" / "gpu"


class DriverFaultsTest(harness.TestCase):
    def lost(self, mode):
        """Waits that did not hold; the simulated driver loses those beside graphs, as the real one does."""
        done = harness.run([PROGRAMS / "lost_wait", mode, 4000, 1, 2], driver="sim")
        found = re.fullmatch(rf"{mode}: (\d+) of 8000 waits did not hold\n", done.out)
        self.assertTrue(found, f"{done.out}\n{done.err}")
        return int(found.group(1))

    def test_the_program_about_lost_waits_finds_them_and_only_them(self):
        for mode in ("launch", "upload", "control"):
            self.assertLess(0, self.lost(mode), mode)
        for mode in ("mutex", "context", "alone"):
            self.assertEqual(0, self.lost(mode), mode)

    def test_the_program_about_ending_threads_ends_where_the_driver_lets_it(self):
        for mode in ("leave", "wait"):
            done = harness.run([PROGRAMS / "ending_thread", mode, 5, 2, 2], driver="sim")
            self.assertEqual((0, f"{mode}: 0 of 2 processes hung; 10 threads each\n"), (done.code, done.out), done.err)


if __name__ == "__main__":
    harness.main()
