"""docs/architecture.md names every folder of src/, and nothing that does not exist; and the check can fail."""

import architecture
import harness

PAGE = (harness.SOURCE / "docs/architecture.md").read_text()


class ArchitectureTest(harness.TestCase):
    def test_the_page_on_architecture_names_the_folders_that_exist(self):
        self.assertEqual([], architecture.faults(PAGE, harness.SOURCE))

    def test_the_architecture_check_sees_a_folder_that_is_gone_and_one_that_is_not_named(self):
        self.assertEqual(["attic/ is named, but is no folder of src/"], architecture.faults(PAGE + "`attic/`", harness.SOURCE))
        self.assertEqual(["src/order/ is not named"], architecture.faults(PAGE.replace("`order/`", ""), harness.SOURCE))
        self.assertEqual(["src/hooks/doors/ is not named"], architecture.faults(PAGE.replace("`hooks/doors/`", ""), harness.SOURCE))

    def test_the_architecture_check_sees_a_file_that_is_gone(self):
        self.assertEqual(["pool/attic.hpp is named, but does not exist"], architecture.faults(PAGE + "`pool/attic.hpp`", harness.SOURCE))


if __name__ == "__main__":
    harness.main()
