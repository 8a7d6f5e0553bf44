"""The numbers are true: against the simulated driver's own account, and against what the program is known to have done."""

import random

import harness
from lab import MIB, drain, fill, play


class CountersTest(harness.TestCase):
    def assert_sums(self, counters):
        """What must hold between counters whatever the program did."""
        device = counters["devices"][0]
        self.assertEqual(counters["allocations"], device["allocations"] + counters["forwarded_allocations"])
        kinds = sum(device[k] for k in ("thread_hits", "slab_hits", "range_hits", "hits_after_wait", "misses", "native_allocations"))
        self.assertEqual(device["allocations"], kinds)
        self.assertEqual(device["hits_at_once"], device["thread_hits"] + device["slab_hits"] + device["range_hits"])
        self.assertEqual(device["allocations"], sum(device["sizes"].values()))
        self.assertEqual(device["asked_bytes"], device["bytes_asked"] - device["bytes_freed"])
        self.assertEqual(device["cached_bytes"], device["reserved_bytes"] - device["live_bytes"])
        for name in ("live", "asked", "cached", "reserved"):
            self.assertGreaterEqual(device[f"peak_{name}_bytes"], device[f"{name}_bytes"], name)
        self.assertLessEqual(device["peak_live_bytes"], device["peak_reserved_bytes"])
        expected = 1 - device["peak_live_bytes"] / max(1, device["peak_reserved_bytes"])
        self.assertAlmostEqual(max(0, expected), device["fragmentation"], places=3)

    def assert_drivers_account(self, played):
        """The simulated driver saw exactly the calls and bytes that cupool says it made."""
        counters, device = played.counters, played.device
        self.assertEqual(device["alloc_calls"], counters["segments_allocated"] + counters["driver_refusals"])
        self.assertEqual(device["free_calls"], counters["segments_released"])
        self.assertEqual(device["current_bytes"], counters["reserved_bytes"])
        self.assertEqual(device["peak_bytes"], counters["peak_reserved_bytes"])

    def test_every_count_of_a_known_program_is_exact(self):
        steps = [*fill(10, 1000), *fill(4, 3 * MIB, "l"), *drain(5), *drain(2, "l"), "s"]
        played = play(*steps)
        c = played.counters
        self.assertEqual((14, 7), (c["allocations"], c["frees"]))
        self.assertEqual(10 * 1000 + 4 * 3 * MIB, c["bytes_asked"])
        self.assertEqual(5 * 1000 + 2 * 3 * MIB, c["bytes_freed"])
        self.assertEqual(5 * 1024 + 2 * 3 * MIB, c["live_bytes"])
        self.assertEqual(5 * 1000 + 2 * 3 * MIB, c["asked_bytes"])
        self.assertEqual({"1024": 10, str(4 * MIB): 4}, c["sizes"])
        self.assertEqual(1, c["synchronisations"])
        self.assert_sums(c)
        self.assert_drivers_account(played)

    def test_random_programs_agree_with_the_driver_and_with_a_reference_count(self):
        for seed in range(1, 9):
            rng = random.Random(seed)
            live, steps, asked, frees, peak = {}, [], 0, 0, 0
            for i in range(200):
                if live and rng.random() < 0.45:
                    name = rng.choice(list(live))
                    steps.append(f"f:{name}")
                    del live[name]
                    frees += 1
                else:
                    size = rng.choice([1, 100, 5000, 70000, 800000, 3 * MIB, 40 * MIB])
                    steps.append(f"a:n{i}:{size}")
                    live[f"n{i}"] = size
                    asked += size
                peak = max(peak, sum(live.values()))
            played = play(*steps, stats_exact="yes")
            c = played.counters
            with self.subTest(seed=seed):
                self.assertEqual((200 - frees, frees), (c["allocations"], c["frees"]))
                self.assertEqual((asked, sum(live.values())), (c["bytes_asked"], c["asked_bytes"]))
                self.assertEqual(peak, c["peak_asked_bytes"])
                self.assert_sums(c)
                self.assert_drivers_account(played)

    def test_whole_allocations_are_counted_as_truly(self):
        played = play(*fill(12, 5000), *drain(9), *fill(4, 5000, "c"), "s", split="no", max_cached="20K")
        self.assertEqual((16, 9), (played.counters["allocations"], played.counters["frees"]))
        self.assertEqual(7 * 5000, played.counters["asked_bytes"])
        self.assertEqual(played.device["alloc_calls"], played.counters["segments_allocated"])
        self.assertEqual(played.device["free_calls"], played.counters["segments_released"])
        self.assert_sums(played.counters)

    def test_every_range_that_was_cut_is_joined_again_when_all_is_free(self):
        held = play(*fill(5, 3 * MIB), thread_cache=0, segment_min="20M").counters
        self.assertEqual((5, 0), (held["splits"], held["merges"]))
        free = play(*fill(5, 3 * MIB), *drain(5), thread_cache=0, max_cached=0, segment_min="20M").counters
        self.assertEqual((5, 5), (free["splits"], free["merges"]))
        self.assertEqual((0, 1), (free["reserved_bytes"], free["trims"]))

    def test_threads_lose_no_count(self):
        for size in (700, 90000, 3 * MIB):
            played = play(f"t:4:{size}:500", f"t:3:{size}:100")
            c = played.counters
            with self.subTest(size=size):
                self.assertEqual((2300, 2300), (c["allocations"], c["frees"]))
                self.assertEqual((2300 * size, 2300 * size), (c["bytes_asked"], c["bytes_freed"]))
                self.assertEqual((0, 0), (c["live_bytes"], c["asked_bytes"]))
                self.assert_sums(c)
                self.assert_drivers_account(played)

    def test_peaks_of_one_thread_are_exact_and_those_of_several_to_one_mebibyte_each(self):
        for settings in ({}, {"stats_exact": "yes"}):
            self.assertEqual(600 * 10240, play(*fill(600, 10000), *drain(600), **settings).counters["peak_live_bytes"])
        rough = play("h:4:300000:20").counters
        self.assertLessEqual(abs(80 * (304 << 10) - rough["peak_live_bytes"]), 5 * MIB)

    def test_peaks_stay_true_when_other_threads_free_the_blocks(self):
        # Each thread frees less than it has to tell of, again and again.
        steps = ["h:8:114688:9"] * 3
        exact = play(*steps, stats_exact="yes")
        self.assertEqual(72 * 114688, exact.counters["peak_live_bytes"])
        for played in (exact, play(*steps)):
            c = played.counters
            self.assertEqual((216, 216, 0), (c["allocations"], c["frees"], c["live_bytes"]))
            self.assertLessEqual(c["peak_live_bytes"], 72 * 114688)
            self.assertGreaterEqual(c["peak_live_bytes"], 72 * 114688 - 9 * MIB)
            self.assertGreater(c["peak_live_bytes"], 5 * MIB)
            self.assert_sums(c)
            self.assert_drivers_account(played)

    def test_memory_that_is_used_for_the_first_time_is_not_counted_as_reused(self):
        for size in (300, 5000, 100000, MIB, 3 * MIB, 30 * MIB):
            for settings in ({}, {"split": "no"}, {"segments": "mapped"}, {"thread_cache": 0}):
                with self.subTest(size=size, settings=settings):
                    once = play(*fill(40, size), *drain(40), **settings)
                    self.assertEqual((0, 40), (once.counters["reused"], once.counters["first_uses"]))
                    self.assertEqual(0, once.counters["waits_avoided"])
                    self.assertIn(", none reused;", play(*fill(40, size), *drain(40), stats="summary", **settings).err)

    def test_memory_that_had_an_owner_is_counted_as_reused(self):
        for size in (300, 5000, MIB, 4 * MIB, 30 * MIB):
            for settings in ({}, {"split": "no"}, {"thread_cache": 0}):
                with self.subTest(size=size, settings=settings):
                    twice = play(*fill(40, size), *drain(40), *fill(40, size), *drain(40), **settings).counters
                    self.assertEqual((40, 40), (twice["reused"], twice["first_uses"]))

    def books(self, dice, count, size):
        """Steps of so many operations, and what the program that takes them has asked for at the end, and at most."""
        steps, held, live, most = [], [], 0, 0
        for i in range(count):
            if held and dice.random() < 0.5:
                name, asked = held.pop(dice.randrange(len(held)))
                steps.append("f:" + name)
                live -= asked
            else:
                asked = size(dice)
                held.append((f"b{i}", asked))
                steps.append(f"a:b{i}:{asked}")
                live += asked
            most = max(most, live)
        return steps, live, most

    def assert_books(self, steps, live, c):
        asked = [int(step.split(":")[2]) for step in steps if step[0] == "a"]
        self.assertEqual((len(asked), len(steps) - len(asked)), (c["allocations"], c["frees"]))
        self.assertEqual((sum(asked), sum(asked) - live, live), (c["bytes_asked"], c["bytes_freed"], c["asked_bytes"]))
        self.assertEqual((0, 0, 0), (c["forwarded_allocations"], c["failed_allocations"], c["failed_frees"]))
        self.assert_sums(c)

    MODES = ({}, {"segments": "mapped"}, {"split": "no"}, {"streams": "fences"}, {"streams": "exact"}, {"free": "sync"}, {"thread_cache": 0},
             {"backend": "native"}, {"driver_env": {"CUPOOL_SIM_DRIVER_VERSION": "12040"}}, {"stats_exact": "yes"})

    def test_figures_of_20000_operations_agree_with_the_books_of_the_program_in_every_mode(self):
        # Sizes that no allocator rounds alike; 2,000 operations in each mode.
        def size(dice):
            return dice.choice((dice.randrange(1, 600), dice.randrange(1, 40000), dice.randrange(1, 3 * MIB)))
        for number, mode in enumerate(self.MODES):
            with self.subTest(mode):
                steps, live, most = self.books(random.Random(number), 2000, size)
                c = play(*steps, **mode).counters
                self.assert_books(steps, live, c)
                # (Rounding may put the peak of the live bytes elsewhere.)
                self.assertLessEqual(c["peak_asked_bytes"], most)
                self.assertLessEqual(c["reused"] + c["first_uses"], c["allocations"])

    def test_what_is_reused_agrees_with_the_addresses_of_20000_operations(self):
        # Of one size, so that a block has the memory of one earlier block or of none.
        for size in (300, 4096, 50000, MIB, 2 * MIB):
            for mode in ({}, {"streams": "fences"}, {"thread_cache": 0}, {"free": "sync"}):
                with self.subTest(size=size, mode=mode):
                    steps, live, most = self.books(random.Random(size), 1000, lambda dice, size=size: size)
                    played = play("A", *steps, **mode)
                    self.assert_books(steps, live, played.counters)
                    addresses = played.printed("at")
                    first = len(set(addresses))
                    self.assertEqual((len(addresses) - first, first), (played.counters["reused"], played.counters["first_uses"]))
                    self.assertEqual(most, played.counters["peak_asked_bytes"])

    def test_peaks_can_be_reset(self):
        played = play(*fill(4, 30 * MIB), *drain(3), "p:peak_live_bytes", "r", "p:peak_live_bytes", "a:z:1000",
                      "p:peak_live_bytes", stats_exact="yes")
        self.assertEqual([120 * MIB, 30 * MIB, 30 * MIB + 1024], played.printed("peak_live_bytes"))

    def test_peaks_of_the_drivers_pool_are_what_is_live_after_a_reset(self):
        played = play(*fill(4, 30 * MIB), *drain(3), "p:native_peak_used_bytes", "r", "p:native_peak_used_bytes", backend="native")
        self.assertEqual([120 * MIB, 30 * MIB], played.printed("native_peak_used_bytes"))

    def test_a_program_out_of_memory_is_counted_truly(self):
        played = play(*fill(9, 500 * MIB), *drain(4), "a:z:1200000000", oom_reports=0)
        c = played.counters
        self.assertEqual((9, 1), (c["allocations"], c["out_of_memory"]), played.out)
        self.assertEqual(1, c["failed_allocations"])
        self.assertGreater(c["driver_refusals"], 0)
        self.assert_sums(c)
        self.assert_drivers_account(played)

    def test_a_forked_child_reports_nothing_and_the_parent_counts_on(self):
        played = play("a:x:1000", "k", "a:y:1000", "f:x")
        self.assertEqual((2, 1), (played.counters["allocations"], played.counters["frees"]))
        self.assert_sums(played.counters)

    def test_where_frees_wait_a_stream_ordered_free_does_not(self):
        for options in ({}, {"split": "no"}):
            played = play("a:x:1000", "a:y:1000", "m:x:1", "F:x", "p:pool_waits", "f:y", free="sync", **options)
            self.assertEqual([0], played.printed("pool_waits"), played.out)
            self.assertEqual((2, 1), (played.counters["frees"], played.counters["pool_waits"]))

    def test_seals_and_waits_are_those_the_driver_saw(self):
        steps = []
        for i in range(60):
            steps += [f"a:n{i}:50000", f"m:n{i}:{i % 3 + 1}", f"f:n{i}"]
        for mode, waits in (("lanes", "stream_waits"), ("fences", "context_waits")):
            played = play(*steps, streams=mode)
            self.assertEqual(played.device["context_records"], played.counters["seals"])
            self.assertEqual(played.device["context_waits"], played.counters["context_waits"])
            self.assertGreater(played.counters[waits], 0)
            self.assertEqual(60, played.counters["submissions"])

    def test_what_mapped_memory_cannot_do_is_counted(self):
        counters = play("a:x:1000", "S:x", segments="mapped").counters
        self.assertEqual(1, counters["refused_for_mapping"])
        self.assertEqual(0, play("a:x:1000", "S:x", "i:x").counters["refused_for_mapping"])

    def test_a_loop_that_frees_one_block_is_served_by_the_pool_however_full_the_device_is(self):
        """Where segments have no room for a second block, and frees of its size need no seal yet."""
        for size in (3 * MIB, 1_000_000, 100_000):
            loop = [step for _ in range(150) for step in (f"a:b:{size}", "m:b:1", "f:b")]
            for full in (1500, 2500):
                with self.subTest(size=size, full=full):
                    c = play(f"a:x:{full * MIB}", *loop, driver_env={"CUPOOL_SIM_MEMORY": "4G"}).counters
                    self.assertLess(c["segments_allocated"], 15)
                    self.assertLess(c["pool_waits"], 15)

    def waits_avoided(self, *steps, seeds=range(1, 4), **settings):
        """The most of several runs, in which the device goes at another pace each time."""
        return max(play(*steps, driver_env={"CUPOOL_SIM_SEED": str(seed), **settings.get("driver_env", {})},
                        **{k: v for k, v in settings.items() if k != "driver_env"}).counters["waits_avoided"] for seed in seeds)

    def test_frees_that_did_not_wait_are_counted_as_waits_avoided(self):
        work = [f"m:b{i}:1" for i in range(20)]
        turns = [step for i in range(20) for step in (f"m:b{i}:1", f"f:b{i}")]
        for settings in ({}, {"split": "no"}, {"thread_cache": 0}, {"segments": "mapped"}):
            with self.subTest(settings=settings):
                # Under the driver the first free waits for all of the work, and the others for none.
                self.assertEqual(1, self.waits_avoided(*fill(20, MIB), *work, *drain(20), **settings))
                self.assertEqual(0, self.waits_avoided(*fill(20, MIB), *work, "s", *drain(20), **settings))
                # The device may be done sooner than the host.
                self.assertTrue(10 <= self.waits_avoided(*fill(20, MIB), *turns, **settings) <= 20)
        c = play(*fill(20, MIB), *drain(20)).counters
        self.assertEqual(0, c["waits_avoided"])
        self.assertGreater(c["driver_allocate_ns"], 0)
        self.assertEqual(c["peak_reserved_bytes"] - 20 * MIB, c["idle_at_peak_bytes"])

    def test_work_that_has_ended_before_the_free_makes_no_wait_avoided_though_the_pool_did_not_see_it(self):
        steps = [step for i in range(20) for step in (f"m:b{i}:1", "e:1", f"f:b{i}")]
        for mode in self.MODES:
            with self.subTest(mode):
                self.assertEqual(0, self.waits_avoided(*fill(20, MIB), *steps, **mode))

    def random_work(self, dice, threads):
        """Steps, and how often the driver's free would have waited at the most: when work was given since the last free or wait."""
        steps, held, waits, has_new = [], [], 0, False
        for i in range(400):
            kind = dice.choice("aaaammmmmffffsy" if held else "a")
            if kind == "a":
                held.append(f"b{i}")
                steps.append(f"a:b{i}:{dice.choice((300, 5000, 70000, MIB, 5 * MIB))}")
                continue
            block = dice.choice(held)
            who = "T@" if threads and dice.random() < 0.5 else ""
            if kind == "m":
                steps.append(f"{who}m:{block}:{dice.randrange(3)}")
                has_new = True
            elif kind == "f":
                held.remove(block)
                steps.append(f"{who}f:{block}")
                waits, has_new = waits + has_new, False
            elif kind == "s":
                steps.append("s")
                has_new = False
            else:
                # One stream's: the others' work is still new.
                steps.append(f"y:{dice.randrange(3)}")
        return steps, waits

    def test_no_more_waits_are_avoided_than_the_driver_would_have_made_in_every_mode(self):
        known = 0
        for number, mode in enumerate(self.MODES):
            for threads in (False, True):
                with self.subTest(mode, threads=threads):
                    steps, waits = self.random_work(random.Random(number), threads)
                    avoided = self.waits_avoided(*steps, seeds=(number + 1, number + 20), **mode)
                    self.assertLessEqual(avoided, waits)
                    if mode.get("free") == "sync" or mode.get("backend") == "native":
                        self.assertEqual(0, avoided)
                    known += avoided
        # How many are known depends on the pace of the device.
        self.assertGreater(known, 10)

    def test_a_free_that_waits_is_not_counted_as_a_wait_avoided(self):
        exact, no_events = {"streams": "exact", "many_budget": 0}, {"driver_env": {"CUPOOL_SIM_DRIVER_VERSION": "12040"}}
        for settings in (exact, {**exact, "split": "no"}, {"max_cached": 0}, {"max_cached": 0, "split": "no"}, {"split": "no", **no_events}):
            with self.subTest(settings=settings):
                steps = [step for i in range(20) for step in (f"m:b{i}:1", f"f:b{i}")]
                c = play(*fill(20, 30 * MIB), *steps, **settings).counters
                self.assertEqual((20, 0), (c["frees"], c["waits_avoided"]))


if __name__ == "__main__":
    harness.main()
