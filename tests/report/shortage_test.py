"""When memory runs out: one report that says who holds what, and the driver's own error for the program."""

import re

import harness
from lab import MIB, drain, fill, play


class ShortageTest(harness.TestCase):
    def test_a_failed_allocation_is_explained_once_with_every_figure(self):
        steps = [*fill(8, 450 * MIB), *fill(30, 1000, "s"), "f:b1", "f:b3", f"a:z:{1500 * MIB}", f"a:z:{1500 * MIB}"]
        played = play(*steps)
        self.assertEqual(2, played.out.count("error 2"), played.out)
        self.assertEqual(1, played.err.count("out of memory on device 0: 1.5 GiB asked"), played.err)
        self.assertRegex(played.err, r"has [\d.]+ \w+ free of 4 GiB")
        self.assertRegex(played.err, r"reserved [\d.]+ GiB: live [\d.]+ GiB, cached [\d.]+ \w+ \(fragmentation \d+ %\)")
        self.assertRegex(played.err, r"largest free range [\d.]+ \w+")
        self.assertRegex(played.err, r"free in \d+ segments that also hold live blocks")
        self.assertRegex(played.err, r"(?m)^cupool:   1 KiB +30 +30 KiB")
        self.assertRegex(played.err, r"(?m)^cupool:   512 MiB +6 +2\.6 GiB")

    def test_the_table_adds_up_to_what_is_live(self):
        played = play(*fill(7, 500 * MIB), f"a:z:{1500 * MIB}")
        row = re.search(r"(?m)^cupool:   512 MiB +(\d+)", played.err)
        self.assertEqual("7", row.group(1))

    def test_the_limit_is_named_when_it_was_the_reason(self):
        played = play(f"a:x:{90 * MIB}", f"a:y:{90 * MIB}", limit="100M")
        self.assertIn("CUPOOL_LIMIT allows 100 MiB", played.err)
        self.assertIn(f"a:y:{90 * MIB} error 2", played.out)

    def test_more_than_the_device_ever_had_is_no_shortage(self):
        played = play(f"a:x:{1 << 40}", f"a:x:{1 << 50}")
        self.assertEqual((2, ""), (played.out.count("error 2"), played.err))

    def test_memory_that_is_free_in_pieces_is_given_back_before_failing(self):
        # Seven of eight are freed: together they make room for one that none of them could hold.
        played = play(*fill(8, 450 * MIB), *drain(7), f"a:z:{3000 * MIB}")
        self.assertNotIn("error", played.out)
        self.assertEqual("", played.err)

    def test_stream_ordered_memory_finds_the_room_that_the_pool_keeps(self):
        played = play(f"a:x:{3000 * MIB}", "f:x", f"o:y:{3000 * MIB}")
        self.assertEqual(("", ""), (played.out, played.err))

    def test_one_context_finds_the_room_that_is_kept_for_another(self):
        for settings in ({}, {"split": 0}, {"backend": "native"}):
            with self.subTest(settings=settings):
                played = play(f"a:x:{3000 * MIB}", "f:x", "C", f"a:y:{3000 * MIB}", **settings)
                self.assertEqual(("", ""), (played.out, played.err))

    def test_device_memory_finds_the_room_that_is_kept_for_managed_memory(self):
        for settings in ({}, {"split": 0}, {"backend": "native"}):
            with self.subTest(settings=settings):
                played = play(f"g:x:{3000 * MIB}", "f:x", f"a:y:{3000 * MIB}", **settings)
                self.assertEqual(("", ""), (played.out, played.err))


if __name__ == "__main__":
    harness.main()
