"""Copies between two contexts bring the same bytes whether segments are the driver's or mapped."""

import harness

PROGRAM = harness.BUILD / "tests" / "victims" / "copies"
ACROSS = harness.BUILD / "tests" / "victims" / "across"
SETTINGS = [{"CUPOOL_SEGMENTS": segments, "CUPOOL_STREAMS": streams} for segments in ("driver", "mapped") for streams in ("lanes", "fences", "exact")]
DEVICES = {"CUPOOL_SIM_DEVICES": "2"}
SKIPPED = 77


class CopiesTest(harness.TestCase):
    def test_plain_copies_between_two_devices_need_no_peer_access(self):
        for settings in ({}, {"CUPOOL_SEGMENTS": "mapped"}, {"CUPOOL_SEGMENTS": "mapped", "CUPOOL_STREAMS": "exact"}):
            with self.subTest(settings=settings):
                done = harness.with_cupool([PROGRAM], env={**DEVICES, **settings})
                if done.code == SKIPPED:
                    self.skipTest("one device")
                self.assertEqual((0, ""), (done.code, done.out), done.err)

    def test_plain_copies_between_two_devices_may_have_one_mapped_side(self):
        # The second chunk of the second device is refused, and so are all after it.
        settings = {"CUPOOL_SEGMENTS": "mapped", "CUPOOL_SIM_FAULTS": "cuMemCreate@4+=801"}
        done = harness.with_cupool([PROGRAM], env={**DEVICES, **settings}, driver="sim")
        self.assertIn("the driver refuses to map memory", done.err)
        self.assertEqual((0, ""), (done.code, done.out), done.err)

    def assert_right_across(self, *words):
        # What is asked of cupool is what the driver gives.
        bare = harness.run([ACROSS, *words], env=DEVICES)
        if bare.code == SKIPPED:
            self.skipTest("one device")
        self.assertEqual((0, ""), (bare.code, bare.out), bare.err)
        for settings in SETTINGS:
            for seed in ("1", "2", "3"):
                with self.subTest(settings=settings, seed=seed):
                    done = harness.with_cupool([ACROSS, *words], env={**DEVICES, **settings, "CUPOOL_SIM_SEED": seed})
                    self.assertEqual((0, ""), (done.code, done.out), done.err)

    def test_a_copy_by_another_context_comes_after_the_old_work_on_its_block(self):
        self.assert_right_across("reused")

    def test_a_copy_by_another_device_comes_after_the_old_work_on_its_block(self):
        self.assert_right_across("reused", "devices")

    def test_a_block_is_freed_after_another_context_has_copied_it(self):
        self.assert_right_across("freed")

    def test_a_block_is_freed_after_another_device_has_copied_it(self):
        self.assert_right_across("freed", "devices")

    def test_work_waits_for_a_plain_copy_by_another_context(self):
        self.assert_right_across("ordered")

    def test_work_waits_for_a_plain_copy_by_another_device(self):
        self.assert_right_across("ordered", "devices")

    def test_a_shaped_copy_may_name_the_memory_of_two_contexts_in_each_way(self):
        bare = harness.run([ACROSS, "shaped"])
        self.assertEqual(3, bare.out.count("memory type"), bare.err)
        for settings in SETTINGS:
            with self.subTest(settings=settings):
                done = harness.with_cupool([ACROSS, "shaped"], env=settings)
                self.assertEqual((0, bare.out), (done.code, done.out), done.err)


if __name__ == "__main__":
    harness.main()
