"""Every victim, through every door: the same answers and results as bare, and every call counted once.

Runs with the off switch (hooks forward and count) and with what is the default; the promise is the same.
"""

import harness


class DoorsTest(harness.TestCase):
    def under_cupool(self, command, backend, more_env=None, before=()):
        """Runs under cupool; gives the result and the counters that the library itself reports."""
        env = {"CUPOOL_STATS": "json", **(more_env or {})}
        if backend:
            env["CUPOOL_BACKEND"] = backend
        result = harness.run(command, preload=[*before, harness.LIBRARY], env=env)
        return result, result.take_counters()

    def same_in_both_modes(self, command, **options):
        """Bare and under cupool print the same and succeed; yields the runs under cupool with their counters."""
        bare = harness.run(command)
        self.assertEqual(0, bare.code, bare.out + bare.err)
        for backend in ("off", ""):
            result, counters = self.under_cupool(command, backend, **options)
            with self.subTest(backend=backend or "default"):
                self.assert_same_run(bare, result)
            yield result, counters, backend

    def assert_counted(self, result, counters, name, backend, *, async_frees=0):
        """One process reported, and it saw exactly the calls the victim says it made."""
        tally = result.tally(name)
        self.assertEqual(1, len(counters), "one process made CUDA calls, so one reports")
        seen = counters[0]
        self.assertEqual(tally["allocs"] + seen["pitched_allocations"], seen["allocations"])
        # The pool takes a block back from cuMemFreeAsync as a free; switched off, that call is the driver's.
        self.assertEqual(tally["frees"] + async_frees, seen["frees"] + seen["async_frees"])
        if backend != "off":  # switched off, work passes without a note
            self.assertGreaterEqual(seen["submissions"], tally["launches"])

    def test_a_linked_program_has_every_call_counted_and_its_results_unchanged(self):
        for result, counters, backend in self.same_in_both_modes([harness.victim("linked")]):
            self.assert_counted(result, counters, "linked", backend, async_frees=1)
            self.assertEqual(1, counters[0]["pitched_allocations"])
            self.assertEqual(1, counters[0]["managed_allocations"])

    def test_a_program_that_uses_dlsym_has_every_call_counted(self):
        for result, counters, backend in self.same_in_both_modes([harness.victim("dlsym")]):
            self.assert_counted(result, counters, "dlsym", backend)

    def test_a_program_that_loads_like_cudart_gets_the_drivers_answers_and_is_counted(self):
        for result, counters, _ in self.same_in_both_modes([harness.victim("getproc")]):
            other = result.tally("getproc per-thread")
            tally = result.tally("getproc")
            self.assertEqual(tally["allocs"] + other["allocs"], counters[0]["allocations"])
            self.assertEqual(tally["frees"] + other["frees"], counters[0]["frees"])

    def test_memory_comes_from_the_context_that_is_current_whoever_changed_it(self):
        for result, _, _ in self.same_in_both_modes([harness.victim("current")]):
            self.assertIn("created on top: in the current context", result.out)
            self.assertNotIn("ANOTHER", result.out)

    def test_a_context_that_a_kernel_ended_answers_every_call_as_the_driver_does(self):
        bare = harness.run([harness.victim("broken")])
        self.assertIn("memset on the other stream: 700", bare.out)
        for backend in ("off", ""):
            result, _ = self.under_cupool([harness.victim("broken")], backend)
            self.assertEqual((bare.code, bare.out), (result.code, result.out))
        for more in ({"CUPOOL_SPLIT": "no"}, {"CUPOOL_SEGMENTS": "mapped"}, {"CUPOOL_CHECK": "yes"}):
            result, _ = self.under_cupool([harness.victim("broken")], "", more_env=more)
            self.assertEqual((bare.code, bare.out), (result.code, result.out), more)

    def test_an_error_of_one_context_leaves_the_pool_of_another_alone(self):
        two = {"CUPOOL_SIM_DEVICES": "2"}
        bare = harness.run([harness.victim("faults")], env=two)
        if bare.out == "one device\n":
            self.skipTest("this takes two devices")
        self.assertIn("wait for the stream: 700", bare.out)
        result, counters = self.under_cupool([harness.victim("faults")], "", more_env=two)
        self.assertEqual((bare.code, bare.out), (result.code, result.out))
        self.assertEqual(0, counters[0]["forwarded_allocations"], "the pool went on serving the other context")

    def test_a_primary_context_can_end_while_another_thread_ends_its_own(self):
        # A real context takes a third of a second to make.
        times, rounds = (1, 12) if harness.DRIVER == "gpu" else (3, 100)
        for _ in range(times):
            for result, _, _ in self.same_in_both_modes([harness.victim("primaries"), str(rounds)]):
                self.assertEqual("0 calls failed\n", result.out)

    def test_a_library_that_ends_after_us_is_still_answered(self):
        """The sanitizers see what is used after its end; a plain build seldom does."""
        bare = harness.run([harness.victim("late_host")], env=self.next_path())
        for backend in ("off", ""):
            result, _ = self.under_cupool([harness.victim("late_host")], backend, more_env=self.next_path())
            self.assertEqual((bare.code, bare.out), (result.code, result.out), result.err)

    def test_an_override_behind_us_is_not_called_in_a_loop(self):
        bare = harness.run([harness.victim("next_host")], env=self.next_path())
        self.assertEqual(0, bare.code, bare.out + bare.err)
        self.assertIn("tag=71 next_agrees=1", bare.out)
        for backend in ("off", ""):
            result, counters = self.under_cupool([harness.victim("next_host")], backend,
                                                 more_env=self.next_path())
            self.assertEqual((bare.code, bare.out), (result.code, result.out))
            self.assert_counted(result, counters, "next", backend)

    def test_an_override_preloaded_in_front_of_us_sees_every_call_and_so_do_we(self):
        override = harness.victim("libvictim_next_override.so")
        result, counters = self.under_cupool([harness.victim("next_host")], "off", before=[override],
                                             more_env=self.next_path())
        self.assertEqual(0, result.code, result.err)
        self.assert_counted(result, counters, "next", "off")
        tally = result.tally("next")
        self.assertIn(f"override: allocs={tally['allocs']} frees={tally['frees']}", result.err)

    def test_a_deepbind_plug_in_passes_us_by_and_its_memory_is_still_freed(self):
        self.need_no_sanitizer("a sanitizer's runtime refuses RTLD_DEEPBIND")
        command = [harness.victim("deepbind"), harness.victim("libvictim_plugin.so")]
        for result, counters, _ in self.same_in_both_modes(command):
            self.assertEqual(1, len(counters))
            self.assertEqual(result.tally("deepbind")["allocs"], counters[0]["allocations"])

    def test_a_dlmopen_namespace_works_beside_us(self):
        self.need_no_sanitizer("a sanitizer's runtime cannot be in a process twice, as dlmopen would have it")
        command = [harness.victim("dlmopen"), harness.victim("libvictim_plugin.so")]
        if harness.DRIVER == "gpu" and harness.run(command).code != 0:
            self.skipTest("this driver refuses a second copy of itself in a process")
        for result, counters, backend in self.same_in_both_modes(command):
            self.assert_counted(result, counters, "dlmopen", backend)

    def test_forked_and_executed_children_work_and_count_for_themselves(self):
        command = [harness.victim("fork_exec"), *(["no-exec"] if harness.EMULATOR else [])]
        for result, counters, _ in self.same_in_both_modes(command):
            made = [result.tally(name)["allocs"] for name in ("child before init", "exec child", "fork_exec")
                    if name != "exec child" or not harness.EMULATOR]
            served = sorted(c["allocations"] for c in counters if c["allocations"] > 0)
            # A child that leaves by _exit may not get to report: what is reported must be right.
            self.assertIn(result.tally("fork_exec")["allocs"], served)
            self.assertLessEqual(set(served), set(made))

    def test_a_child_of_a_parent_that_only_looked_around_is_served(self):
        for result, counters, backend in self.same_in_both_modes([harness.victim("forks"), "looked"]):
            self.assert_counted(result, [c for c in counters if c["allocations"] > 0], "forks", backend)

    def test_a_fork_amid_green_contexts_leaves_no_child_hanging(self):
        if harness.DRIVER != "sim":
            self.skipTest("what a child may ask of another driver is its own business")
        result, _ = self.under_cupool([harness.victim("forks"), "green"], "cache")
        self.assertEqual(0, result.code, result.out)

    def test_threads_that_hand_blocks_over_lose_no_count_and_no_byte(self):
        for result, counters, backend in self.same_in_both_modes([harness.victim("threads"), "4", "50"]):
            self.assert_counted(result, counters, "threads", backend)
            self.assertEqual(0, result.tally("threads")["wrong"])

    def test_a_program_without_cuda_sees_no_difference(self):
        for _, counters, _ in self.same_in_both_modes([harness.victim("plain")]):
            self.assertEqual([], counters, "a process without CUDA reports nothing")

    def test_switched_off_the_driver_sees_exactly_the_programs_calls(self):
        if harness.DRIVER != "sim":
            self.skipTest("only the simulated driver tells what it saw")
        bare = harness.run([harness.victim("linked")])
        result, _ = self.under_cupool([harness.victim("linked")], "off")
        self.assertEqual(bare.device, result.device)
        self.assertGreater(bare.device["alloc_calls"], 0)

    def next_path(self):
        """The override's libraries lie beside the victims, which have no run path."""
        path = str(harness.victim(""))
        if harness.DRIVER == "sim":
            path = f"{harness.BUILD / 'sim'}:{path}"
        return {"LD_LIBRARY_PATH": path}


if __name__ == "__main__":
    harness.main()
