"""The version stands in one place and tells the commit it was built from."""

import re
import shutil
import subprocess

import harness

COMMAND = harness.BUILD / "cupool"


class VersionTest(harness.TestCase):
    def commit_of(self, source):
        """What cmake/commit.cmake finds for a source tree."""
        return harness.run(["cmake", f"-DSOURCE={source}", "-P", source / "cmake/commit.cmake"], driver="sim").out.strip()

    def tree(self, name, archived):
        """A source tree of its own, with the line that git archive has written, or not."""
        where = self.scratch / name / "cmake"
        where.mkdir(parents=True)
        shutil.copy(harness.SOURCE / "cmake/commit.cmake", where)
        (where / "commit.txt").write_text(archived + "\n")
        return where.parent

    def test_the_version_tells_the_commit_and_is_the_first_of_the_changelog(self):
        said = harness.run([COMMAND, "version"], driver="sim").out
        found = re.fullmatch(r"cupool (\d+\.\d+\.\d+(?:-dev)?) \(commit (?:[0-9a-f]{12}|unknown)\)\n", said)
        self.assertTrue(found, said)
        first = re.search(r"(?m)^## (\S+)", (harness.SOURCE / "CHANGELOG.md").read_text()).group(1)
        self.assertEqual(first, found.group(1))
        self.assertIn(f"Version {first} ", (harness.SOURCE / "README.md").read_text())

    def test_a_checkout_knows_its_commit_from_git_an_archive_from_its_file_and_a_copy_not_at_all(self):
        self.assertEqual("unknown", self.commit_of(self.tree("copy", "$Format:%H$")))
        self.assertEqual("0123456789ab", self.commit_of(self.tree("archive", "0123456789abcdef0123456789abcdef01234567")))
        if shutil.which("git") is None:
            return
        checkout = self.tree("checkout", "$Format:%H$")
        git = ["git", "-C", checkout, "-c", "user.name=a", "-c", "user.email=a@example.org"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
            subprocess.run([*git, *words], check=True, capture_output=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(head[:12], self.commit_of(checkout))
        # A copy inside somebody else's checkout is not that commit.
        inside = checkout / "inside"
        shutil.copytree(checkout / "cmake", inside / "cmake")
        self.assertEqual("unknown", self.commit_of(inside))


if __name__ == "__main__":
    harness.main()
