"""Plain copies between two devices bring the same bytes whether segments are the driver's or mapped."""

import harness

PROGRAM = harness.BUILD / "tests" / "victims" / "copies"
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


if __name__ == "__main__":
    harness.main()
