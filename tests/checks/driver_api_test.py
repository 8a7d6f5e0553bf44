"""Every driver function that can submit work is hooked or excused with a reason; and the check can fail."""

import driver_api
import harness

KNOWN = harness.SOURCE / "src/cuda/known.def"


class DriverApiTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.declarations = driver_api.declared(harness.COMPILER, harness.CUDA_INCLUDE)
        self.declarations.update(driver_api.declared_later(harness.SOURCE))
        self.table = driver_api.exported_names(harness.COMPILER, harness.SOURCE)
        self.plain, self.quiet = driver_api.known_names(KNOWN)
        for name in driver_api.called_names(harness.SOURCE / "src/cuda/api.def"):
            if name in driver_api.stream_functions(self.declarations):
                self.quiet[name] = "called by cupool itself"

    def faults(self, *, declarations=None, table=None, quiet=None):
        """What the check says of the real lists, or of them with one replaced."""
        return driver_api.faults(self.declarations if declarations is None else declarations,
                                 self.table if table is None else table, self.plain,
                                 self.quiet if quiet is None else quiet)

    def test_every_function_of_cuda_h_that_can_submit_work_is_hooked_or_excused(self):
        self.assertGreater(len(driver_api.stream_functions(self.declarations)), 150, "cuda.h was not understood")
        self.assertEqual([], self.faults())

    def test_every_hooked_driver_function_is_one_that_the_toolkit_declares(self):
        hooked = {name for name in self.table if name.startswith("cu") and not name.startswith("cupool_")}
        stray = {name for name in hooked if name not in self.declarations
                 and driver_api.without_per_thread(name) not in self.declarations
                 and not driver_api.declared_elsewhere(name, harness.CUDA_INCLUDE)}
        self.assertEqual(set(), stray)

    def new_faults(self, **replaced):
        """What the check says only because of the replacement."""
        return [fault for fault in self.faults(**replaced) if fault not in self.faults()]

    def test_the_api_check_sees_a_launch_that_nobody_hooks(self):
        found = self.new_faults(table=self.table - {"cuLaunchKernel"})
        self.assertEqual(1, len(found))
        self.assertIn("cuLaunchKernel ", found[0])

    def test_the_api_check_sees_a_function_of_a_newer_toolkit(self):
        newer = dict(self.declarations, cuLaunchTomorrow="CUstream hStream")
        self.assertEqual(1, len(self.new_faults(declarations=newer)))

    def test_the_api_check_sees_an_excuse_without_need_or_reason(self):
        self.assertEqual(1, len(self.new_faults(quiet=dict(self.quiet, cuGone="old"))))
        name = next(iter(self.quiet))
        self.assertEqual(1, len(self.new_faults(quiet=dict(self.quiet, **{name: ""}))))


if __name__ == "__main__":
    harness.main()
