"""Every driver function that says it can fail for want of memory is repeated after a release, or excused; and the check can fail."""

import driver_api
import harness
import room_marks


class RoomMarksTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.documented, self.read = room_marks.refusable((harness.CUDA_INCLUDE / "cuda.h").read_text())
        plain, quiet = driver_api.known_names(harness.SOURCE / "src/cuda/known.def")
        self.names = {*driver_api.declared(harness.COMPILER, harness.CUDA_INCLUDE), *driver_api.declared_later(harness.SOURCE), *plain, *quiet}
        self.marked = room_marks.marks(harness.SOURCE)

    def faults(self, *, documented=(), names=(), unmarked=(), excused=None):
        """What the check says of the real lists with something added or taken away."""
        return room_marks.faults(self.documented | set(documented), self.names | set(names), self.marked - set(unmarked),
                                 room_marks.EXCUSED if excused is None else excused)

    def test_every_function_that_can_be_refused_for_want_of_memory_is_repeated_or_excused(self):
        self.assertGreater(self.read, 400, "cuda.h was not understood")
        self.assertGreater(len(self.documented), 50, "cuda.h was not understood")
        self.assertEqual([], self.faults())

    def test_the_check_of_marks_sees_a_function_without_one(self):
        self.assertEqual(["cuMemCreate can be refused for want of memory and is not marked"], self.faults(unmarked=["cuMemCreate"]))
        self.assertEqual(["cuMemTomorrow can be refused for want of memory and is not marked"], self.faults(documented=["cuMemTomorrow"]))

    def test_the_check_of_marks_sees_a_new_version_of_a_marked_function(self):
        said = ["cuLaunchKernel_v2 is not marked, but another version of it is"]
        self.assertEqual(said, self.faults(names=["cuLaunchKernel_v2", "cuLaunchKernel_v2_ptsz"]))
        said = ["cuGraphAddNode is not marked, but another version of it is"]
        self.assertEqual(said, self.faults(unmarked=["cuGraphAddNode"]))

    def test_the_check_of_marks_sees_an_excuse_without_need_or_reason(self):
        for name, reason in {"cuLaunchKernel": "marked", "cuMemFree_v2": "cannot be refused", "cuMemAlloc_v2": ""}.items():
            self.assertEqual(1, len(self.faults(excused={**room_marks.EXCUSED, name: reason})), name)


if __name__ == "__main__":
    harness.main()
