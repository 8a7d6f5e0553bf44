"""Files stay short, say what they own, are finished and formatted; and the check can fail."""

import shutil
import subprocess

import harness
import sources


class SourcesTest(harness.TestCase):
    def sample(self, text):
        """The faults of one file with this text."""
        path = self.scratch / "sample.cpp"
        path.write_text(text)
        return sources.faults([path])

    def test_every_source_file_is_short_and_says_what_it_owns(self):
        self.assertEqual([], sources.faults(sources.files(harness.SOURCE)))

    def test_the_source_check_sees_a_file_that_is_too_long(self):
        self.assertEqual(1, len(self.sample("// Owns nothing.\n" * (sources.MOST_LINES + 1))))

    def test_the_source_check_sees_a_file_without_an_opening(self):
        self.assertEqual(1, len(self.sample("#pragma once\n")))

    def test_the_source_check_sees_unfinished_work(self):
        self.assertEqual(1, len(self.sample("// Owns nothing.\nint f();  // FIXME\n")))

    def test_every_source_file_and_every_table_is_formatted(self):
        formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
        version = formatter and subprocess.run([formatter, "--version"], capture_output=True, text=True, check=True).stdout
        if not version or "version 14." not in version:
            self.skipTest("clang-format 14 is not here, and another version formats otherwise")
        paths = [p for p in sources.files(harness.SOURCE) if p.suffix in (".cpp", ".hpp", ".h", ".cu")]
        paths += sorted((harness.SOURCE / "src").rglob("*.def"))
        self.assertEqual("", self.unformatted(formatter, paths))
        table = self.scratch / "sample.def"
        table.write_text("ROW( a,b )\n")
        self.assertIn("sample.def", self.unformatted(formatter, [table]))

    def unformatted(self, formatter, paths):
        """What the formatter would change."""
        style = f"--style=file:{harness.SOURCE / '.clang-format'}"
        done = subprocess.run([formatter, style, "--dry-run", "-Werror", *paths], capture_output=True, text=True, check=False)
        return done.stderr[:4000]


if __name__ == "__main__":
    harness.main()
