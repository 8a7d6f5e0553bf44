"""The advice when memory runs out: every setting that it names lets the same program go on."""

import random
import re

import harness
from lab import MIB, drain, fill, play

DEVICE = {"CUPOOL_SIM_MEMORY": "256M"}


def every_second(count, name="b"):
    return [f"f:{name}{i}" for i in range(0, count, 2)]


# Situations: name, steps, options. In several tests, because each is run once more for every setting that is named.
LIMITS = [
    ("the limit, with room on the device", [f"a:x:{90 * MIB}", f"a:y:{90 * MIB}"], {"limit": "100M"}),
    ("the limit, and no room on the device", [f"a:x:{90 * MIB}", f"o:o:{140 * MIB}", f"a:y:{90 * MIB}"], {"limit": "100M"}),
    ("a limit that counts after rounding", [f"a:x:{50 * MIB}", f"a:y:{50 * MIB + 1}"], {"limit": "100M"}),
    ("the limit of the driver's pool", [f"a:x:{90 * MIB}", f"a:y:{90 * MIB}"], {"native_max": "100M", "backend": "native"}),
    ("the limit, blocks not cut", [f"a:x:{90 * MIB}", f"a:y:{90 * MIB}"], {"limit": "100M", "split": "no"}),
]
PIECES = [
    ("pieces of 2 MiB", [*fill(120, 2 * MIB), *every_second(120), f"a:z:{130 * MIB}"], {}),
    ("pieces of 3 MiB", [*fill(60, 3 * MIB), *every_second(60), f"a:z:{100 * MIB}"], {}),
    ("pieces of 300 KiB", [*fill(700, 300 << 10), *every_second(700), f"a:z:{120 * MIB}"], {}),
    ("pieces under a limit", [*fill(60, 2 * MIB), *every_second(60), f"a:z:{64 * MIB}"], {"limit": "128M"}),
]
MAPPED_PIECES = [
    ("pieces in mapped memory", [*fill(700, 300 << 10), *every_second(700), f"a:z:{120 * MIB}"], {"segments": "mapped"}),
    ("pieces in large chunks", [f"a:x:{192 * MIB}", "f:x", *fill(600, 300 << 10), *[f"f:b{i}" for i in range(600) if i % 27],
                                f"a:z:{150 * MIB}"], {"segments": "mapped"}),
    ("blocks that the driver would pack worse", [f"a:x:{192 * MIB}", "f:x", *fill(269, 700000),
                                                 *[f"f:b{i}" for i in range(269) if i % 27], f"a:z:{150 * MIB}"], {"segments": "mapped"}),
]
NO_ROOM = [
    ("rounding of the driver's", [*fill(60, 2 * MIB + 5000), f"a:z:{90 * MIB}"], {"segment_exact": "2M"}),
    ("rounding, blocks not cut", [*fill(60, 2 * MIB + 5000), f"a:z:{90 * MIB}"], {"split": "no"}),
    ("blocks of odd sizes, not cut", fill(65, 3 * MIB), {"split": "no"}),
    ("small blocks of the driver's pool", fill(129, 100 << 10), {"backend": "native"}),
    ("somebody else's memory", [f"o:x:{150 * MIB}", f"a:y:{120 * MIB}"], {}),
    ("the program's own memory", [*fill(7, 30 * MIB), f"a:z:{80 * MIB}"], {}),
    ("the program's own memory, with too little to spill", [*fill(7, 30 * MIB), f"a:z:{80 * MIB}"], {"spill": "10M"}),
    ("a driver that refuses without a reason", ["a:x:1000", f"a:y:{30 * MIB}"],
     {"driver_env": {"CUPOOL_SIM_FAULTS": "cuMemAlloc_v2@2+=2"}}),
]


# Programs that once needed more of the driver than they held of the pool: blocks a little above two mebibytes take
# four of the driver's each, and those a little above one take two.
LARGER_BEFORE = [*fill(90, 2 * MIB + 5000, "p"), *drain(90, "p")]
TWICE_BEFORE = [*fill(20, 2 * MIB + 5000, "q"), *fill(70, 2 * MIB + 5000, "p"), *drain(70, "p"), *drain(20, "q")]
# Here only CUPOOL_SPLIT=no needs more; and what these blocks leave serves larger ones, whatever CUPOOL_SEGMENT_EXACT is.
SMALLER_BEFORE = [*fill(160, MIB + 20000, "p"), *drain(160, "p")]


def ragged(seed):
    """A program of blocks of many sizes, of which some have gone when it asks for much."""
    dice = random.Random(seed)
    steps, held, names = [], 0, []
    while held < 200 * MIB:
        size = dice.choice([dice.randrange(1, 64 << 10), dice.randrange(64 << 10, 2 * MIB), dice.randrange(2 * MIB, 24 * MIB)])
        names.append(f"b{len(names)}")
        steps.append(f"a:{names[-1]}:{size}")
        held += size
    for name in dice.sample(names, len(names) // 2):
        steps.append(f"f:{name}")
    return [*steps, f"a:z:{dice.randrange(70, 160) * MIB}"]


class RemediesTest(harness.TestCase):
    def advice(self, steps, options):
        """The settings that the report names; None: nothing was refused."""
        options = {**options, "driver_env": {**DEVICE, **options.get("driver_env", {})}}
        played = play(*steps, **options)
        if "error 2" not in played.out:
            return None
        named = re.findall(r"(?m)^cupool:   (CUPOOL_\w+)=(\w+) ", played.err)
        if not named:
            self.assertRegex(played.err, r"(?m)^cupool:   no setting ")
        for name, value in named:
            option = name.removeprefix("CUPOOL_").lower()
            self.assertNotEqual(str(options.get(option, "")).lower(), value.lower(), played.err)
            again = play(*steps, **{**options, option: value})
            self.assertNotIn("error", again.out, f"{name}={value} does not help: {steps[-1]} {options}\n{played.err}\n{again.err}")
            self.assertNotIn("out of memory", again.err)
        return [name for name, _ in named]

    def assert_helpful(self, situations):
        for name, steps, options in situations:
            with self.subTest(name):
                self.assertIsNotNone(self.advice(steps, options), "the situation refuses nothing")

    def test_every_setting_that_the_report_names_at_a_limit_lets_the_program_go_on(self):
        self.assert_helpful(LIMITS)

    def test_every_setting_that_the_report_names_between_pieces_lets_the_program_go_on(self):
        self.assert_helpful(PIECES)

    def test_every_setting_that_the_report_names_between_mapped_pieces_lets_the_program_go_on(self):
        self.assert_helpful(MAPPED_PIECES)

    def test_every_setting_that_the_report_names_where_there_is_no_room_lets_the_program_go_on(self):
        self.assert_helpful(NO_ROOM)

    def test_advice_holds_for_programs_of_many_sizes(self):
        refused = 0
        for seed in range(12):
            with self.subTest(seed):
                refused += self.advice(ragged(seed), {}) is not None
        self.assertGreater(refused, 3)

    def advice_after(self, *before):
        return self.advice([*before, *fill(118, 2 * MIB), *every_second(118), f"a:z:{130 * MIB}"], {})

    def test_advice_holds_for_programs_that_had_larger_blocks_before(self):
        self.assertEqual(["CUPOOL_SPILL"], self.advice_after(*LARGER_BEFORE))
        self.assertEqual(["CUPOOL_SPILL"], self.advice_after(*TWICE_BEFORE))

    def test_advice_holds_for_programs_that_had_larger_blocks_in_a_context_before(self):
        self.assertEqual(["CUPOOL_SPILL"], self.advice_after(*LARGER_BEFORE, "R"))

    def test_advice_holds_for_programs_that_had_smaller_blocks_before(self):
        self.assertEqual(["CUPOOL_SEGMENTS", "CUPOOL_SPILL"], self.advice_after(*SMALLER_BEFORE))

    def test_advice_holds_for_programs_with_two_contexts(self):
        apart = fill(50, 2 * MIB + 5000, "c")
        pieces = [*fill(60, 2 * MIB), *every_second(60), f"a:z:{90 * MIB}"]
        self.assertIsNotNone(self.advice([*apart, "C", *pieces], {}))

    def test_the_ways_out_are_named_in_the_order_of_what_they_cost(self):
        named = self.advice([*fill(120, 2 * MIB), *every_second(120), f"a:z:{130 * MIB}"], {})
        self.assertEqual(["CUPOOL_SEGMENTS", "CUPOOL_SEGMENT_EXACT", "CUPOOL_SPLIT", "CUPOOL_SPILL"], named)

    def test_a_limit_is_not_named_where_the_device_has_no_more_either(self):
        steps = [f"a:x:{90 * MIB}", f"o:o:{140 * MIB}", f"a:y:{90 * MIB}"]
        self.assertEqual(["CUPOOL_SPILL"], self.advice(steps, {"limit": "100M"}))


if __name__ == "__main__":
    harness.main()
