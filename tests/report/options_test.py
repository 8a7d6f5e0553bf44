"""Every option changes what it says it changes, and a bad one is told in one sentence and changes nothing."""

import json

import harness
import lab
import trace_blocks
from lab import MIB, drain, fill, play

COMMAND = harness.BUILD / "cupool"


def streams(count, size, per=3):
    """Steps of a program that uses each block on one of several streams and frees it at once."""
    steps = []
    for i in range(count):
        steps += [f"a:n{i}:{size}", f"m:n{i}:{i % per + 1}", f"f:n{i}"]
    return steps


class OptionsTest(harness.TestCase):
    def all_options(self):
        """The table, as the command gives it."""
        return json.loads(harness.run([COMMAND, "options", "--json"]).out)

    def test_every_option_has_a_test_here(self):
        tests = [name for name in dir(self) if name.startswith("test_option_")]
        for option in self.all_options():
            name = option["name"].removeprefix("CUPOOL_").lower()
            self.assertTrue(any(f"test_option_{name}_" in test + "_" for test in tests), f"no test of {option['name']}")

    # ---- Who serves.

    def test_option_backend_decides_who_serves(self):
        for backend, key in (("cache", "segments_allocated"), ("native", "native_allocations"), ("off", "forwarded_allocations")):
            counters = play("a:x:1000", backend=backend).counters
            served = {k: counters[k] for k in ("segments_allocated", "native_allocations", "forwarded_allocations")}
            self.assertEqual([key], [k for k, v in served.items() if v > 0])

    def test_option_help_prints_the_table_and_goes_on(self):
        done = harness.with_cupool([lab.PROGRAM, "a:x:1000"], env={"CUPOOL_HELP": "1"}, driver="sim")
        self.assertEqual(0, done.code)
        for option in self.all_options():
            self.assertIn(option["name"], done.err)
        if not harness.EMULATOR:
            self.assertIn("CUPOOL_LIMIT", harness.with_cupool(["true"], env={"CUPOOL_HELP": "1"}).err)

    def test_option_help_keeps_a_value_on_its_line(self):
        env = {"CUPOOL_HELP": "1", "CUPOOL_STATS_FILE": "/nowhere/a\nb"}
        done = harness.with_cupool([lab.PROGRAM, "a:x:1000"], env=env, driver="sim")
        self.assertIn("CUPOOL_STATS_FILE=/nowhere/a?b", done.err)

    def test_option_log_says_more_or_less(self):
        bad = {"limit": "junk"}
        for level in ("normal", "quiet"):
            self.assertIn("junk", play("s", log=level, **bad).err)
            done = harness.with_cupool([lab.PROGRAM, "a:x:1"], env={"CUPOOL_STATS": "summary", "CUPOOL_LOG": level}, driver="sim")
            self.assertEqual(level == "normal", "1 allocation" in done.err, done.err)
        self.assertIn("native pool of device 0", play("a:x:1", backend="native", log="verbose").err)
        self.assertEqual("", play("a:x:1", backend="native").err)

    def test_option_only_names_the_programs_that_are_served(self):
        self.assertEqual("lanes", play("a:x:1000", only="scr*,other").counters["mode"])
        self.assertEqual("off", play("a:x:1000", only="other,python?").counters["mode"])

    def test_option_except_names_the_programs_that_are_not(self):
        self.assertEqual("off", play("a:x:1000", **{"except": "scrip?"}).counters["mode"])
        self.assertEqual("lanes", play("a:x:1000", **{"except": "other"}).counters["mode"])

    # ---- Time.

    def test_option_streams_chooses_who_waits_for_the_work_of_reused_memory(self):
        for mode, waits in (("lanes", (True, False)), ("fences", (False, True)), ("exact", (False, False))):
            counters = play(*streams(60, 50000), streams=mode).counters
            self.assertEqual((mode, *waits), (counters["mode"], counters["stream_waits"] > 0, counters["context_waits"] > 0))

    def test_option_free_makes_every_free_wait(self):
        waits = [play(*streams(10, 1000), free=how).counters["pool_waits"] for how in ("async", "sync")]
        self.assertEqual([0, 10], waits)

    def test_option_many_budget_trades_memory_for_waits_between_streams(self):
        steps = streams(60, 5 * MIB)
        mean = play(*steps, many_budget=0).counters
        generous = play(*steps, many_budget="2G").counters
        self.assertLess(generous["stream_waits"], mean["stream_waits"])
        self.assertGreater(generous["peak_reserved_bytes"], mean["peak_reserved_bytes"])

    # ---- Memory.

    def test_option_max_cached_bounds_what_is_kept(self):
        steps = [*fill(6, 30 * MIB), *drain(6)]
        self.assertEqual(180 * MIB, play(*steps).counters["reserved_bytes"])
        self.assertEqual(60 * MIB, play(*steps, max_cached="60M").counters["reserved_bytes"])

    def test_option_limit_is_hard(self):
        played = play(f"a:x:{50 * MIB}", f"a:y:{60 * MIB}", limit="100M", oom_reports=0)
        self.assertIn("error 2", played.out)
        self.assertLessEqual(played.counters["peak_reserved_bytes"], 100 * MIB)
        self.assertEqual("", play(f"a:x:{50 * MIB}", f"a:y:{60 * MIB}").out)

    def test_option_decay_ms_gives_idle_segments_back_at_a_quiet_moment(self):
        # (Cupool's own thread may just be at it, and without a processor.)
        steps = [*fill(3, 30 * MIB), *drain(3), "s", *["n:12", "s"] * 20]
        self.assertEqual(90 * MIB, play(*steps).counters["reserved_bytes"])
        decayed = play(*steps, decay_ms=8).counters
        self.assertEqual((0, 3), (decayed["reserved_bytes"], decayed["decays"]))
        self.assertEqual(0, play(*fill(3, 30 * MIB), *drain(3), "s", "s", decay_ms=80000).counters["decays"])
        used = play(*fill(3, 30 * MIB), "s", "n:12", "s", decay_ms=8).counters
        self.assertEqual(0, used["decays"])

    def test_option_small_limit_moves_sizes_between_slabs_and_ranges(self):
        steps = fill(3, 60000)
        self.assertEqual(0, play(*steps).counters["slab_hits"] + play(*steps).counters["thread_hits"])
        cut = play(*steps, small_limit="64K").counters
        self.assertEqual(2, cut["slab_hits"] + cut["thread_hits"])

    def test_option_min_block_rounds_small_blocks(self):
        self.assertEqual(10 * 512, play(*fill(10, 10)).counters["live_bytes"])
        self.assertEqual(10 * 4096, play(*fill(10, 10), min_block="4K").counters["live_bytes"])

    def test_option_large_round_rounds_large_blocks(self):
        self.assertEqual(112 * 1024, play("a:x:100000").counters["live_bytes"])
        self.assertEqual(2 * MIB, play("a:x:100000", large_round="2M").counters["live_bytes"])

    def test_option_segment_min_is_the_size_of_the_first_segment(self):
        sizes = [play("a:x:3000000", segment_min=s).counters["reserved_bytes"] for s in ("4M", "64M")]
        self.assertEqual([4 * MIB, 64 * MIB], sizes)

    def test_option_segment_max_bounds_what_is_taken_in_advance(self):
        steps = fill(60, 4 * MIB)
        options = {"segment_min": "2M", "segment_exact": "64M"}
        few = play(*steps, segment_max="16M", **options).counters["segments_allocated"]
        self.assertGreater(few, play(*steps, segment_max="256M", **options).counters["segments_allocated"])

    def test_option_segment_exact_gives_large_blocks_a_segment_of_their_own(self):
        self.assertEqual(30 * MIB, play(f"a:x:{30 * MIB}").counters["reserved_bytes"])
        self.assertGreater(play(f"a:x:{30 * MIB}", segment_exact="64M", segment_min="64M").counters["reserved_bytes"], 30 * MIB)

    def test_option_split_makes_every_block_an_allocation_of_its_own(self):
        self.assertEqual(1, play(*fill(5, 1000)).counters["segments_allocated"])
        self.assertEqual(5, play(*fill(5, 1000), split="no").device["alloc_calls"])

    def test_option_segments_decides_what_segments_are_made_of(self):
        steps = ["a:x:8388608", "a:y:8388608", "f:x", "T:0"]
        mapped = play(*steps, segments="mapped")
        self.assertLess(0, mapped.counters["chunks_mapped"])
        # A hole beside a live block goes back.
        self.assertIn("trimmed 8388608", mapped.out)
        self.assertEqual(mapped.counters["chunks_mapped"], 2 * mapped.counters["chunks_unmapped"])
        driver = play(*steps, segments="driver", segment_min="20M")
        self.assertEqual(0, driver.counters["chunks_mapped"])
        self.assertIn("trimmed 0", driver.out)

    def test_free_chunks_are_moved_into_one_piece_rather_than_made_anew(self):
        apart = [f"a:x:{8 * MIB}", f"a:p:{8 * MIB}", f"a:y:{8 * MIB}", f"a:q:{8 * MIB}", "f:x", "f:y"]
        before = play(*apart, segments="mapped").counters
        after = play(*apart, f"a:z:{16 * MIB}", segments="mapped").counters
        self.assertEqual((0, 2 * before["chunks_mapped"] // 4), (before["chunks_moved"], after["chunks_moved"]))
        self.assertEqual(before["chunks_mapped"], after["chunks_mapped"])

    def test_option_chunk_bounds_the_chunks_of_mapped_segments(self):
        steps = ["a:x:268435456"]
        few = play(*steps, segments="mapped").counters["chunks_mapped"]
        many = play(*steps, segments="mapped", chunk="4M").counters["chunks_mapped"]
        self.assertEqual((16, 64), (few, many))

    def test_option_split_max_keeps_large_ranges_whole(self):
        steps = [f"a:x:{30 * MIB}", "f:x", f"a:y:{4 * MIB}"]
        self.assertEqual(1, play(*steps).counters["segments_allocated"])
        self.assertEqual(2, play(*steps, split_max="16M", max_cached="unlimited").counters["segments_allocated"])

    def test_option_thread_cache_bounds_what_a_thread_keeps(self):
        steps = [step for i in range(30) for step in ("a:x:1000", "f:x")]
        self.assertGreater(play(*steps).counters["thread_hits"], 25)
        self.assertEqual(0, play(*steps, thread_cache=0).counters["thread_hits"])

    def test_option_managed_pools_managed_memory_or_not(self):
        steps = ["g:x:5000000", "s", "f:x", "s", "g:y:5000000"]
        self.assertGreater(play(*steps, managed="no").device["alloc_calls"], play(*steps, managed="yes").device["alloc_calls"])

    # ---- The native pool.

    def test_option_fallback_adds_a_last_resort(self):
        faults = {"CUPOOL_SIM_FAULTS": "cuMemAlloc_v2@*=2"}
        self.assertIn("error 2", play("a:x:1000", driver_env=faults).out)
        self.assertEqual("", play("a:x:1000", fallback="native", driver_env=faults).out)

    def test_option_spill_adds_host_memory_behind_the_devices(self):
        steps = fill(3, 40 * MIB)
        self.assertEqual(1, play(*steps, limit="100M", oom_reports=0).out.count("error 2"))
        self.assertEqual("", play(*steps, limit="100M", spill="40M").out)
        self.assertEqual(1, play(*steps, limit="100M", spill="39M", oom_reports=0).out.count("error 2"))

    def test_option_native_max_bounds_the_native_pool(self):
        steps = fill(3, 40 * MIB)
        self.assertEqual("", play(*steps, backend="native").out)
        self.assertEqual(1, play(*steps, backend="native", native_max="100M", oom_reports=0).out.count("error 2"))

    def assert_native_setting(self, words, **options):
        self.assertIn(words, play("a:x:1000", backend="native", log="verbose", **options).err)

    def native_reserve(self, *more, **options):
        """Most and last bytes that pairs of allocation and free took for the native pool."""
        pairs = [step for i in range(20) for step in ("a:x:3000000", "f:x")]
        c = play(*pairs, *more, backend="native", **options).counters
        return c["native_peak_reserved_bytes"], c["native_reserved_bytes"]

    def test_option_native_keep_is_the_release_threshold(self):
        most, kept = self.native_reserve("s", "s")
        self.assertEqual(most, kept)
        self.assertEqual(0, self.native_reserve("s", "s", native_keep="0")[1])
        self.assert_native_setting("keeps unlimited")
        self.assert_native_setting("keeps 64M", native_keep="64M")

    def test_option_native_handle_makes_the_pool_shareable(self):
        self.assert_native_setting("shareable: no")
        self.assert_native_setting("shareable: yes", native_handle="fd")

    def test_option_native_follow_events_is_the_drivers_attribute(self):
        self.assert_native_setting("follows events: yes")
        self.assert_native_setting("follows events: no", native_follow_events="no")

    def test_option_native_opportunistic_is_the_drivers_attribute(self):
        self.assert_native_setting("opportunistic: yes")
        self.assert_native_setting("opportunistic: no", native_opportunistic="no")
        # What was freed is done but nobody was told so: it is used again only by looking.
        self.assertGreater(self.native_reserve(native_opportunistic="no")[0], self.native_reserve()[0])

    def test_option_native_internal_is_the_drivers_attribute(self):
        self.assert_native_setting("internal dependencies: no")
        self.assert_native_setting("internal dependencies: yes", native_internal="yes")
        self.assertGreater(self.native_reserve(native_opportunistic="no")[0],
                           self.native_reserve(native_opportunistic="no", native_internal="yes")[0])

    # ---- Reports.

    def test_option_stats_chooses_the_form(self):
        lengths = {}
        for form in ("off", "summary", "text", "json"):
            done = harness.with_cupool([lab.PROGRAM, "a:x:1"], env={"CUPOOL_STATS": form}, driver="sim")
            lengths[form] = len(done.err)
        self.assertEqual(0, lengths["off"])
        self.assertTrue(0 < lengths["summary"] < lengths["text"] < lengths["json"])

    def test_option_stats_file_takes_the_report(self):
        path = self.scratch / "here.json"
        harness.with_cupool([lab.PROGRAM, "a:x:1"], env={"CUPOOL_STATS": "json", "CUPOOL_STATS_FILE": str(path)}, driver="sim")
        self.assertTrue(path.exists())

    def test_option_metrics_file_takes_the_figures(self):
        path = self.scratch / "here.prom"
        harness.with_cupool([lab.PROGRAM, "a:x:1"], env={"CUPOOL_METRICS_FILE": str(path)}, driver="sim")
        self.assertIn("cupool_live_bytes{", path.read_text())

    def test_option_counts_file_keeps_the_counts_of_every_process_for_its_user_alone(self):
        place = self.scratch / "counts"
        for _ in range(2):
            play("a:x:1000", counts_file=f"{place}-%e")
        # The second takes a name of its own.
        files = sorted(self.scratch.iterdir())
        self.assertEqual(["counts-script", "counts-script.2"], [one.name for one in files])
        # Nobody cuts it off by mistake: that would kill the program.
        self.assertEqual({0o400}, {one.stat().st_mode & 0o777 for one in files})

    def test_option_watch_device_notes_the_most_of_the_device_in_use(self):
        for watch in ("yes", "no"):
            place = self.scratch / watch
            play(f"a:x:{48 * MIB}", "f:x", f"a:y:{8 * MIB}", counts_file=place, watch_device=watch)
            self.assertEqual(watch == "yes", (48 * MIB).to_bytes(8, "little") in place.read_bytes()[:4096])

    def test_option_trace_records_the_program(self):
        path = self.scratch / "here.trace"
        harness.with_cupool([lab.PROGRAM, "a:x:1"], env={"CUPOOL_TRACE": str(path)}, driver="sim")
        self.assertEqual(b"CUCT", path.read_bytes()[:4])

    def test_option_trace_max_ends_a_trace(self):
        path = self.scratch / "here.trace"
        done = harness.with_cupool([lab.PROGRAM, "t:1:512:500000"], env={"CUPOOL_TRACE": str(path), "CUPOOL_TRACE_MAX": "1M"}, driver="sim")
        self.assertEqual(0, done.code)
        self.assertIn("it has the size of CUPOOL_TRACE_MAX", done.err)
        self.assertLessEqual(path.stat().st_size, 1 << 20)

    def test_option_trace_keep_writes_no_file_until_it_is_asked_for(self):
        path = self.scratch / "here.trace"
        done = harness.with_cupool([lab.PROGRAM, "a:x:1"], env={"CUPOOL_TRACE": str(path), "CUPOOL_TRACE_KEEP": "1M"}, driver="sim")
        self.assertEqual((0, False), (done.code, path.exists()))
        self.assertIn("has no effect without CUPOOL_TRACE", play("a:x:1", trace_keep="1M").err)

    def test_option_trace_signal_begins_no_trace_until_it_comes(self):
        path = self.scratch / "here.trace"
        env = {"CUPOOL_TRACE": str(path), "CUPOOL_TRACE_SIGNAL": "USR2"}
        done = harness.with_cupool([lab.PROGRAM, "a:x:1"], env=env, driver="sim")
        self.assertEqual((0, "", False), (done.code, done.err, path.exists()))
        self.assertIn("has no effect without CUPOOL_TRACE", play("a:x:1", trace_signal="USR1").err)
        for more, name in (({"CUPOOL_STATS_SIGNAL": "USR2"}, "CUPOOL_STATS_SIGNAL"), ({"CUPOOL_TRACE_KEEP": "1M"}, "CUPOOL_TRACE_KEEP")):
            done = harness.with_cupool([lab.PROGRAM, "a:x:1"], env={**env, **more}, driver="sim")
            self.assertIn(f"CUPOOL_TRACE_SIGNAL contradicts {name}", done.err)

    def stacks(self, *steps, **env):
        """The sizes that a trace notes a stack for, and all sizes."""
        path = self.scratch / "here.trace"
        harness.with_cupool([lab.PROGRAM, *steps], env={"CUPOOL_TRACE": str(path), **env}, driver="sim")
        events = [event for event in trace_blocks.Trace(path).events if event["event"] == "allocated"]
        return [event["asked"] for event in events if event["stack"]], [event["asked"] for event in events]

    def test_option_stacks_notes_call_stacks(self):
        self.assertEqual(([], [1000]), self.stacks("a:x:1000"))
        self.assertEqual(([1000], [1000]), self.stacks("a:x:1000", CUPOOL_STACKS="16"))
        self.assertIn("CUPOOL_STACKS=16 has no effect without", play("a:x:1", stacks="16").err)

    def test_option_stacks_min_leaves_out_small_ones(self):
        self.assertEqual(([2 * MIB], [1000, 2 * MIB]), self.stacks("a:x:1000", f"a:y:{2 * MIB}", CUPOOL_STACKS="16", CUPOOL_STACKS_MIN="1M"))

    def test_option_sample_notes_some_stacks_alone(self):
        drawn, all_sizes = self.stacks("t:1:4096:1000", CUPOOL_STACKS="16", CUPOOL_SAMPLE="64K")
        self.assertEqual(1000, len(all_sizes))
        self.assertTrue(10 < len(drawn) < 200, len(drawn))

    def test_option_leaks_lists_what_is_held_at_the_end(self):
        self.assertIn("still held at the end: 1 KiB in 1 block, the largest holders first:", play("a:x:1000", leaks="yes").err)
        self.assertNotIn("held at the end", play("a:x:1000").err)

    def test_option_neighbours_dir_is_where_the_command_looks(self):
        done = harness.run([harness.BUILD / "cupool", "top"], env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, driver="sim")
        self.assertIn(f"in {self.scratch}: there is none", done.err)

    def test_option_stats_signal_reports_on_demand(self):
        lab.needs_signals(self)
        done = harness.with_cupool([lab.PROGRAM, "a:x:1", "x:usr2"], env={"CUPOOL_STATS_SIGNAL": "usr2"}, driver="sim")
        self.assertEqual(0, done.code)
        self.assertIn("allocations", done.err)

    def test_option_stats_exact_makes_peaks_exact(self):
        steps = ["h:4:512:50", *fill(1, 512)]
        exact, rough = play(*steps, stats_exact="yes").counters, play(*steps).counters
        self.assertEqual((200 * 512, 200 * 512), (exact["peak_live_bytes"], exact["peak_live_most_bytes"]))
        self.assertLess(rough["peak_live_bytes"], rough["peak_live_most_bytes"])

    def test_option_oom_reports_is_how_many_failures_are_explained(self):
        steps = [f"a:x:{3 << 30}", *[f"a:y:{3 << 30}"] * 4]
        for wanted in (0, 1, 3):
            self.assertEqual(wanted, play(*steps, oom_reports=wanted).err.count("out of memory on device"))

    # ---- Aids.

    def test_option_fill_writes_over_memory(self):
        played = play("a:x:1000", "c:x", fill="alloc:0xA5,free:0x5A")
        self.assertIn("byte 165", played.out)

    def test_option_zero_clears_memory(self):
        steps = ["a:x:1000", "m:x:1", "s", "f:x", "a:x:1000", "c:x"]
        self.assertIn("byte 1\n", play(*steps).out)
        self.assertIn("byte 0\n", play(*steps, zero="yes").out)

    def test_option_check_reports_bad_frees(self):
        self.assertEqual("", play("a:x:1000", "f:x", "f:x").err)
        self.assertNotEqual("", play("a:x:1000", "f:x", "f:x", check="yes").err)

    # ---- What is wrong with a configuration.

    def bad_configurations(self):
        """(settings, what the sentence names): a hundred and more."""
        nonsense = ["junk", "-1", "1e9", "0x10", "12 apples", "9" * 40, "\x7f\x01", "%", "1.2.3G", "K"]
        for option in self.all_options():
            name = option["name"]
            if option["type"] == "text" or name in ("CUPOOL_STATS", "CUPOOL_LOG"):
                continue
            for value in nonsense[:5]:
                yield {name: value}, name
        for value in nonsense:
            yield {"CUPOOL_LIMIT": value}, "CUPOOL_LIMIT"
        for name in ("CUPOOL_LIMT", "CUPOOL_MAXCACHED", "CUPOOL_STREAM", "CUPOOL_XYZZY", "CUPOOL_", "CUPOOL_backend"):
            yield {name: "1"}, name
        yield {"CUPOOL_SMALL_LIMIT": "1"}, "CUPOOL_SMALL_LIMIT"
        yield {"CUPOOL_MIN_BLOCK": "700"}, "power of two"
        yield {"CUPOOL_MIN_BLOCK": "64K"}, "outside"
        yield {"CUPOOL_LARGE_ROUND": "1G"}, "outside"
        yield {"CUPOOL_SEGMENT_MIN": "1G", "CUPOOL_SEGMENT_MAX": "16M"}, "above CUPOOL_SEGMENT_MAX"
        yield {"CUPOOL_MIN_BLOCK": "16K", "CUPOOL_SMALL_LIMIT": "1K"}, "above CUPOOL_SMALL_LIMIT"
        yield {"CUPOOL_ONLY": "script", "CUPOOL_EXCEPT": "other"}, "contradict"
        yield {"CUPOOL_DECAY_MS": "99999999999"}, "outside"
        yield {"CUPOOL_LIMIT": "16M", "CUPOOL_SEGMENT_MIN": "20M"}, "below CUPOOL_SEGMENT_MIN"
        yield {"CUPOOL_STATS_FILE": "report-%z.json"}, "%z"
        yield {"CUPOOL_STATS_FILE": "report%"}, "stays as it is"
        yield {"CUPOOL_METRICS_FILE": str(self.scratch / "m-%z")}, "%z"
        yield {"CUPOOL_FILL": "junk"}, "junk"

    def test_a_hundred_bad_configurations_say_one_sentence_each_and_change_no_result(self):
        steps = [*fill(5, 5000), "a:z:3000000", "m:z:1", "s", "c:z", *drain(5), "w"]
        bare = harness.run([lab.PROGRAM, *steps], driver="sim")
        count = 0
        for settings, named in self.bad_configurations():
            done = harness.with_cupool([lab.PROGRAM, *steps], env={"CUPOOL_OOM_REPORTS": "0", **settings}, driver="sim")
            with self.subTest(settings=settings):
                self.assertEqual((bare.code, bare.out), (done.code, done.out), done.err)
                self.assertEqual(1, done.err.count("\n"), done.err)
                self.assertIn(named, done.err)
            count += 1
        self.assertGreaterEqual(count, 100)


if __name__ == "__main__":
    harness.main()
