"""When memory runs out: one report that says who holds what, and the driver's own error for the program."""

import re

import harness
from lab import MIB, PROGRAM, drain, fill, play


class ShortageTest(harness.TestCase):
    def test_a_failed_allocation_is_explained_once_with_every_figure(self):
        steps = [*fill(8, 450 * MIB), *fill(30, 1000, "s"), "f:b1", "f:b3", f"a:z:{1500 * MIB}", f"a:z:{1500 * MIB}"]
        played = play(*steps, driver_env={"SLURM_PROCID": "3"})
        self.assertEqual(2, played.out.count("error 2"), played.out)
        self.assertRegex(played.err, r"^cupool: script\[\d+\] rank 3: out of memory on device 0: 1\.5 GiB asked\ncupool:   because ")
        self.assertEqual(1, played.err.count("out of memory on device"), played.err)
        self.assertRegex(played.err, r"has [\d.]+ \w+ free of 4 GiB; reserved [\d.]+ GiB: live [\d.]+ GiB, idle [\d.]+ \w+, largest free")
        self.assertRegex(played.err, r"free in \d+ segments? that also holds? live blocks")
        self.assertRegex(played.err, r"(?m)^cupool:   1 KiB +30 +30 KiB")
        self.assertRegex(played.err, r"(?m)^cupool:   512 MiB +6 +2\.6 GiB")

    def test_the_table_adds_up_to_what_is_live(self):
        played = play(*fill(7, 500 * MIB), f"a:z:{1500 * MIB}")
        row = re.search(r"(?m)^cupool:   512 MiB +(\d+)", played.err)
        self.assertEqual("7", row.group(1))

    # ---- The cause, and settings with which the same program passes.

    def assert_cause(self, steps, because, *settings, **options):
        """The report names the cause; it names exactly these settings, and with each alone the program passes."""
        played = play(*steps, **options)
        self.assertIn("error 2", played.out)
        self.assertRegex(played.err.splitlines()[1], "^cupool:   because " + because)
        # Whether host memory would do depends on how much of it lies free.
        advised = [a for a in re.findall(r"(?m)^cupool:   (CUPOOL_\w+)=(\S+) ", played.err) if a[0] != "CUPOOL_SPILL"]
        self.assertEqual(list(settings), [f"{name}={value}" for name, value in advised], played.err)
        for name, value in advised:
            again = play(*steps, **{**options, name.removeprefix("CUPOOL_").lower(): value})
            self.assertEqual(("", ""), (again.out, again.err), name)
        self.assertEqual(played.counters["shortage"], re.search(r"(?m)^cupool:   because (.*)$", played.err).group(1))
        told = [line.removeprefix("cupool:   ") for line in played.err.splitlines()]
        self.assertTrue(played.counters["shortage_advice"])
        self.assertTrue(set(played.counters["shortage_advice"]) <= set(told), told)

    def test_the_limit_is_the_cause_and_the_one_that_suffices_is_named(self):
        self.assert_cause([f"a:x:{90 * MIB}", f"a:y:{90 * MIB}"],
                          "CUPOOL_LIMIT is 100 MiB, of which 90 MiB are in use: 90 MiB more is 80 MiB too much$",
                          "CUPOOL_LIMIT=180M", limit="100M")

    def test_the_limit_counts_after_rounding(self):
        played = play(f"a:x:{50 * MIB}", f"a:y:{50 * MIB + 1}", limit="100M")
        self.assertIn("50 MiB asked, 52 MiB with rounding\n", played.err)
        self.assertIn("52 MiB more is 2 MiB too much", played.err)
        self.assert_cause([f"a:x:{50 * MIB}", f"a:y:{50 * MIB + 1}"], "CUPOOL_LIMIT is 100 MiB", "CUPOOL_LIMIT=102M", limit="100M")

    def test_the_limit_of_whole_blocks_and_of_the_native_pool_is_named(self):
        steps = [f"a:x:{90 * MIB}", f"a:y:{90 * MIB}"]
        self.assert_cause(steps, "CUPOOL_LIMIT is 100 MiB", "CUPOOL_LIMIT=180M", limit="100M", split="no")
        self.assert_cause(steps, "CUPOOL_NATIVE_MAX is 100 MiB", "CUPOOL_NATIVE_MAX=180M", native_max="100M", backend="native")

    def test_pieces_are_the_cause_and_what_avoids_them_is_named(self):
        steps = [*fill(28, 2 * MIB), *[f"f:b{i}" for i in range(0, 28, 2)], f"a:z:{26 * MIB}"]
        self.assert_cause(steps, "20 MiB are free, but in pieces between live blocks, the largest of 2 MiB; the device lacks ",
                          "CUPOOL_SEGMENTS=mapped", "CUPOOL_SEGMENT_EXACT=2M", "CUPOOL_SPLIT=no", driver_env={"CUPOOL_SIM_MEMORY": "64M"})

    def test_pieces_in_another_context_are_the_cause_and_what_avoids_them_is_named(self):
        thirds = [f"f:b{i}" for i in range(30) if i % 3]
        self.assert_cause([*fill(30, 10 * MIB), *thirds, "C", f"a:z:{350 * MIB}"],
                          "200 MiB are free, but 100 MiB of them in pieces between live blocks, the largest of 20 MiB, 100 MiB in other "
                          "contexts; the device lacks 138 MiB$",
                          "CUPOOL_SEGMENTS=mapped", "CUPOOL_SEGMENT_EXACT=2M", "CUPOOL_SPLIT=no", driver_env={"CUPOOL_SIM_MEMORY": "512M"})

    def test_pieces_of_device_memory_are_the_cause_where_managed_memory_finds_no_room(self):
        steps = [f"g:m:{300 * MIB}", *fill(30, 3 * MIB), *[f"f:b{i}" for i in range(30) if i % 3], f"g:z:{150 * MIB}"]
        options = {"driver_env": {"CUPOOL_SIM_MEMORY": "512M"}}
        self.assert_cause(steps, "66 MiB lie free between blocks of device memory in this process; the device lacks 34 MiB$", **options)
        self.assertIn("less lies free between blocks: CUPOOL_SEGMENTS=mapped, or CUPOOL_SPLIT=no\n", play(*steps, **options).err)
        for settings in {"segments": "mapped"}, {"split": "no"}:
            self.assertEqual("", play(*steps, **options, **settings).out)

    def test_the_cause_is_the_pools_where_the_last_resort_has_no_memory_either(self):
        steps = [*fill(28, 2 * MIB), *[f"f:b{i}" for i in range(0, 28, 2)], f"a:z:{26 * MIB}"]
        self.assert_cause(steps, "20 MiB are free, but in pieces between live blocks, the largest of 2 MiB; the device lacks ",
                          "CUPOOL_SEGMENTS=mapped", "CUPOOL_SEGMENT_EXACT=2M", "CUPOOL_SPLIT=no", fallback="native",
                          driver_env={"CUPOOL_SIM_MEMORY": "64M"})

    def test_memory_that_is_not_the_pools_is_the_cause(self):
        steps = [f"o:x:{3000 * MIB}", f"a:y:{2000 * MIB}"]
        self.assert_cause(steps, r"other processes, or memory of other kinds in this one, hold 2\.9 GiB; the device lacks ")
        self.assertRegex(play(*steps).err, "no setting of this process helps: nvidia-smi shows|CUPOOL_SPILL=2000M puts")

    def test_the_program_itself_is_the_cause(self):
        steps = [*fill(7, 500 * MIB), f"a:z:{1500 * MIB}"]
        self.assert_cause(steps, r"the program holds 3\.4 GiB of the device's 4 GiB; the device lacks ")
        bare = harness.run([PROGRAM, *steps], driver="sim")
        self.assertIn("error 2", bare.out)

    def test_what_the_program_holds_is_counted_in_all_its_contexts(self):
        device = {"CUPOOL_SIM_MEMORY": "256M"}
        steps = [f"a:x:{100 * MIB}", "C", f"a:y:{50 * MIB}", f"a:z:{150 * MIB}"]
        together = "cupool:   all contexts together reserved 150 MiB: live 150 MiB, idle 0 B"
        for settings in ({}, {"segments": "mapped"}, {"backend": "native"}, {"split": "no"}):
            with self.subTest(settings=settings):
                self.assert_cause(steps, "the program holds 150 MiB of the device's 256 MiB; the device lacks 44 MiB$",
                                  driver_env=device, **settings)
                err = play(*steps, driver_env=device, **settings).err
                # (All others are counted for the device as it is.)
                self.assertEqual("backend" in settings, together in err, err)
        self.assertNotIn("together", play(f"a:x:{200 * MIB}", f"a:z:{150 * MIB}", driver_env=device).err)

    def test_managed_memory_and_device_memory_are_told_apart(self):
        device = {"CUPOOL_SIM_MEMORY": "256M"}
        self.assert_cause([f"a:x:{90 * MIB}", f"g:y:{100 * MIB}", f"g:z:{110 * MIB}"],
                          "the program holds 100 MiB of managed and 90 MiB of device memory on a device of 256 MiB, which lacks 44 MiB$",
                          driver_env=device)
        played = play(f"a:x:{90 * MIB}", f"g:z:{300 * MIB}", driver_env=device)
        self.assertIn("because it is more than all of the device's 256 MiB, and the driver refused it\n", played.err)
        self.assertIn("of 256 MiB; managed memory reserved 0 B: live 0 B,", played.err)
        self.assertIn("device memory reserved 90 MiB: live 90 MiB, idle 0 B\n", played.err)
        self.assert_cause([f"o:o:{100 * MIB}", f"a:x:{60 * MIB}", f"g:z:{110 * MIB}"],
                          "other processes, or memory of other kinds in this one, hold 100 MiB; the device lacks 14 MiB$", driver_env=device)

    def test_what_the_drivers_pool_keeps_and_does_not_use_is_named(self):
        # (The simulated driver's pool gives each block two mebibytes.)
        self.assert_cause(fill(20, 1000), "the driver's own pool keeps 32 MiB that it does not use for this; the device lacks ",
                          driver_env={"CUPOOL_SIM_MEMORY": "32M"}, backend="native")

    def test_a_driver_that_refuses_without_a_reason_is_told_of(self):
        self.assert_cause(["a:x:1000", f"a:y:{30 * MIB}"], "the driver refused 30 MiB although the device has [34]",
                          "CUPOOL_FALLBACK=native", driver_env={"CUPOOL_SIM_FAULTS": "cuMemAlloc_v2@2+=2"})

    def test_doctor_gives_the_same_advice(self):
        self.need_native()
        env = {"CUPOOL_LIMIT": "100M"}
        done = harness.run([harness.BUILD / "cupool", "doctor", "--", PROGRAM, f"a:x:{90 * MIB}", f"a:y:{90 * MIB}"], env=env, driver="sim")
        said = " ".join(done.out.split())
        self.assertIn("CUPOOL_LIMIT is 100 MiB, of which 90 MiB are in use: 90 MiB more is 80 MiB too much", said)
        self.assertIn("CUPOOL_LIMIT=180M lets it pass", said)
        self.assertNotIn("CUPOOL_FALLBACK", said)

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
