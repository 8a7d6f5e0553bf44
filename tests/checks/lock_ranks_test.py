"""Every lock has a row of its own in the table of ranks, and the page on architecture shows that table; and the check can fail."""

import shutil

import harness
import lock_ranks


class LockRanksTest(harness.TestCase):
    def broken(self, name, old, new):
        """The faults of a copy of the sources in which one text is another."""
        for part in ("src", "docs"):
            shutil.copytree(harness.SOURCE / part, self.scratch / part)
        text = (self.scratch / name).read_text()
        self.assertIn(old, text)
        (self.scratch / name).write_text(text.replace(old, new))
        return lock_ranks.faults(self.scratch)

    def test_every_lock_has_a_rank_of_its_own_and_the_page_on_architecture_shows_it(self):
        self.assertEqual([], lock_ranks.faults(harness.SOURCE))
        self.assertGreater(len(lock_ranks.rows(harness.SOURCE)), 40)

    def test_the_check_of_ranks_sees_two_locks_with_one_and_a_rank_without_a_lock(self):
        self.assertEqual(["Spill: no lock is declared with this rank", "Contexts: 2 locks are declared with this rank"],
                         self.broken("src/mapped/spill.hpp", "Rank::kSpill", "Rank::kContexts"))

    def test_the_check_of_ranks_sees_a_page_that_shows_another_table(self):
        self.assertEqual(["docs/locks.md shows another table: tests/checks/lock_ranks.py --write"],
                         self.broken("docs/locks.md", "| Timeline | yes |", "| Timeline | no |"))


if __name__ == "__main__":
    harness.main()
