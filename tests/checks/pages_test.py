"""Pages are short, say whom they are for and lead on; and the check can fail."""

import shutil

import harness
import pages


class PagesTest(harness.TestCase):
    def test_every_page_is_short_says_whom_it_is_for_and_links_to_what_exists(self):
        self.assertEqual([], pages.faults(harness.SOURCE))

    def test_sources_scripts_and_tests_name_pages_that_exist(self):
        named = [p for folder in ("src", "include", "tests", "scripts", "cmake") for p in (harness.SOURCE / folder).rglob("*")
                 if p.is_file() and p.suffix in ("", ".cpp", ".hpp", ".h", ".def", ".py", ".txt", ".cmake", ".pml")
                 and p.parent.name != "__pycache__" and p.name != "pages_test.py"]
        self.assertEqual([], pages.mentions(harness.SOURCE, [*named, harness.SOURCE / "CMakeLists.txt"]))

    def test_the_check_of_pages_sees_what_is_wrong(self):
        (self.scratch / "docs").mkdir()
        (self.scratch / "docs/README.md").write_text("# Pages\n\nFor everybody.\n\n[a](a.md) [b](b.md)\n")
        (self.scratch / "docs/a.md").write_text("# A\n\nFor people who read.\n" + "word " * 30 + "\n" + "line\n" * 146)
        (self.scratch / "docs/b.md").write_text("# B\n\nText.\n\n[gone](c.md) [none](a.md#no) [there](a.md#a)\n")
        (self.scratch / "docs/d.md").write_text("# D\n\nFor programmers.\n")
        self.assertEqual(["docs/a.md: 151 lines of 120 columns", "docs/b.md: does not say in its first two lines whom it is for",
                          "docs/b.md: c.md leads nowhere", "docs/b.md: a.md#no names no heading",
                          "docs/README.md does not list d.md"], pages.faults(self.scratch))
        source = self.scratch / "a.cpp"
        source.write_text("// docs/gone.md, docs/a.md\n")
        self.assertEqual(["a.cpp: docs/gone.md does not exist"], pages.mentions(self.scratch, [source]))
        shutil.rmtree(self.scratch / "docs")


if __name__ == "__main__":
    harness.main()
