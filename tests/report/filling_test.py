"""To the brim: where the driver fits so many blocks into a device, the same number fits under cupool, in every mode."""

import random

import harness

KIB, MIB = 1 << 10, 1 << 20
DEVICE = 512 * MIB
MODES = {
    "default": {}, "exact": {"CUPOOL_STREAMS": "exact"}, "fences": {"CUPOOL_STREAMS": "fences"}, "sync": {"CUPOOL_FREE": "sync"},
    "mapped": {"CUPOOL_SEGMENTS": "mapped"}, "whole": {"CUPOOL_SPLIT": "no"}, "check": {"CUPOOL_CHECK": "yes"},
    "native": {"CUPOOL_BACKEND": "native"},
}
# Just at, below and above what the driver cuts its own pages into, and what cupool rounds to.
SMALL = [4096, 4097, 5000, 6145, 8192, 8193, 10_241, 12_289, 16_384, 16_385, 18_433, 20_481, 24_577, 30_000, 32_768, 32_769, 40_000,
         49_152, 49_153, 65_537, 80_000, 100_000, 131_073, 180_000, 233_000, 262_145, 299_000, 349_000, 419_000, 524_289, 698_000]
LARGE = [MIB, MIB + 1, 2 * MIB, 3 * MIB, 6 * MIB, 8 * MIB, 10 * MIB, 34 * MIB, 128 * MIB]
MIXED = ["33000,6291456", "8388608,3145728", "1048576,40000", "100000,100001,299000"]


def fill(steps, mode=None, device=DEVICE):
    env = {"CUPOOL_SIM_MEMORY": str(device), "CUPOOL_SIM_ORACLE": "0", "CUPOOL_OOM_REPORTS": "0"}
    command = [harness.victim("fill"), *map(str, steps)]
    done = harness.run(command, env=env) if mode is None else harness.with_cupool(command, env={**env, **MODES[mode]})
    if done.code != 0:
        raise AssertionError(f"{mode}: {done.code}\n{done.out}{done.err}")
    return [tuple(map(int, line.split()[1:])) for line in done.out.splitlines()]


class FillingTest(harness.TestCase):
    def assert_fills(self, steps, modes, alone=False, least=995):
        bare = fill(steps)
        for mode in modes:
            got = [fill([step], mode)[0] for step in steps] if alone else fill(steps, mode)
            for step, (_, expected, _), (blocks, filled, free) in zip(steps, bare, got):
                with self.subTest(mode=mode, step=step, blocks=blocks):
                    self.assertGreaterEqual(1000 * filled, least * expected)
                    # What the driver says is free then is less than what was refused, in whole pages, or a small rest.
                    largest = max(map(int, str(step).split(",")))
                    self.assertLess(free, -(-largest // (2 * MIB)) * 2 * MIB + DEVICE // 200)

    def test_as_many_blocks_fit_as_under_the_driver_at_forty_sizes_in_every_mode(self):
        """The simulated driver's own pool gives each block a page, so it is asked for large ones alone."""
        self.assert_fills([*SMALL, *LARGE], [mode for mode in MODES if mode != "native"])
        self.assert_fills([size for size in LARGE if size > MIB], ["native"])

    def test_as_many_blocks_fit_into_an_untouched_device_as_under_the_driver(self):
        self.assert_fills([8193, 16_385, 32_769, 49_153, 100_000, 299_000, 698_000, 6 * MIB, 8 * MIB, 34 * MIB],
                          ["default", "mapped"], alone=True)

    def test_as_much_fits_in_mixed_sizes_as_under_the_driver(self):
        self.assert_fills(MIXED, ["default", "exact", "mapped", "whole"])

    def test_nine_tenths_and_more_of_random_sizes_below_a_mebibyte_fit_of_what_fits_under_the_driver(self):
        """Known: ranges are multiples of 16 KiB, the driver's of 512 B; the least is lost of large ones."""
        chosen = random.Random(7)
        for low, high, least in ((33, 128, 920), (16, 1024, 970)):
            mix = ",".join(str(chosen.randint(low * KIB, high * KIB)) for _ in range(300))
            self.assert_fills([mix], ["default", "exact", "mapped"], least=least)

    def test_blocks_that_stay_from_phase_to_phase_leave_what_lies_free_to_others(self):
        steps = [f"{size * MIB}/8" for size in (60, 50, 40, 33, 27, 22)]
        bare = fill(steps, device=8 * DEVICE)
        for mode, least in (("default", 99), ("exact", 99), ("sync", 99), ("whole", 99), ("mapped", 98), ("fences", 95)):
            for step, (_, expected, _), (_, filled, _) in zip(steps, bare, fill(steps, mode, device=8 * DEVICE)):
                with self.subTest(mode=mode, step=step):
                    self.assertGreaterEqual(100 * filled, least * expected)


if __name__ == "__main__":
    harness.main()
