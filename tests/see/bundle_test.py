"""The page that `cupool report` fills, as it is committed: what its sources make, with nothing from elsewhere."""

import re
import shutil
import subprocess

import harness

PAGE = harness.SOURCE / "src" / "see" / "page" / "page.html"


class BundleTest(harness.TestCase):
    def test_the_built_page_is_what_its_sources_make(self):
        if shutil.which("npm") is None:
            self.skipTest("npm is not installed")
        done = subprocess.run([harness.SOURCE / "scripts" / "make-page", self.scratch / "fresh.html"], capture_output=True, text=True, check=False)
        if done.returncode == 77:
            self.skipTest("npm cannot reach its registry")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual((self.scratch / "fresh.html").read_bytes(), PAGE.read_bytes(), "run scripts/make-page")

    def test_the_template_has_one_place_for_data_and_takes_nothing_from_elsewhere(self):
        text = PAGE.read_text()
        self.assertEqual(1, text.count("@CUPOOL_DATA@"))
        self.assertIn("default-src 'none'; script-src 'sha256-", text)
        self.assertIn("uPlot", text)
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text))
        self.assertLessEqual(addresses, {"http://www.w3.org/2000/svg"})


if __name__ == "__main__":
    harness.main()
