"""Broken surroundings: the program runs on as it would have without us, with at most one line more on stderr."""

import re

import fakes
import harness


class BadInputTest(harness.TestCase):
    def assert_runs_on(self, command, *, bare_env=None, env=None, before=(), lines=1):
        """The same output and exit code as bare; stderr gains at most `lines` lines, all of them ours."""
        bare = harness.run(command, preload=before, env=bare_env)
        ours = {"CUPOOL_STATS": "off", **(bare_env or {}), **(env or {})}
        preloaded = harness.run(command, preload=[*before, harness.LIBRARY], env=ours)
        self.assertEqual((bare.code, bare.out), (preloaded.code, preloaded.out), preloaded.err)
        ours = [line for line in preloaded.err.splitlines() if line.startswith("cupool: ")]
        others = [line for line in preloaded.err.splitlines() if not line.startswith("cupool: ")]
        self.assertEqual(bare.err.splitlines(), others)
        self.assertLessEqual(len(ours), lines, preloaded.err)
        return preloaded

    def test_without_libcuda_a_program_gets_the_loaders_answer(self):
        nowhere = {"LD_LIBRARY_PATH": str(self.scratch)}
        if "victim: dlopen" not in harness.run([harness.victim("dlsym")], env=nowhere).err:
            self.skipTest("this machine has a libcuda of its own")
        result = self.assert_runs_on([harness.victim("dlsym")], bare_env=nowhere)
        self.assertEqual(2, result.code)
        self.assertIn("libcuda.so.1", result.err)

    def test_a_libcuda_with_hardly_a_symbol_gives_the_loaders_answer(self):
        harness.compile_shared(self.scratch, "libcuda.so.1", "int cuInit(unsigned f) { return f ? 1 : 100; }\n")
        result = self.assert_runs_on([harness.victim("dlsym")], bare_env={"LD_LIBRARY_PATH": str(self.scratch)})
        self.assertIn("no such driver function", result.err)

    def test_a_driver_without_context_events_serves_every_victim(self):
        fakes.reduced_driver(self.scratch, {"cuCtxRecordEvent", "cuCtxWaitEvent"})
        for name in ("linked", "dlsym", "threads"):
            result = self.assert_runs_on([harness.victim(name)], bare_env={"LD_LIBRARY_PATH": str(self.scratch)})
            self.assertEqual(0, result.code, result.err)

    def test_a_driver_without_any_one_function_of_ours_serves_what_it_has(self):
        for name in ("cuMemGetInfo_v2", "cuMemAllocManaged", "cuIpcGetMemHandle", "cuGetProcAddress_v2", "cuPointerGetAttributes",
                     "cuStreamIsCapturing", "cuCtxGetCurrent", "cuEventQuery", "cuMemFreeAsync"):
            folder = self.scratch / name
            folder.mkdir()
            fakes.reduced_driver(folder, {name})
            with self.subTest(missing=name):
                self.assert_runs_on([harness.victim("dlsym")], bare_env={"LD_LIBRARY_PATH": str(folder)})

    def test_a_driver_without_a_device_gives_its_own_error(self):
        result = self.assert_runs_on([harness.victim("linked")], bare_env={"CUPOOL_SIM_DEVICES": "0"}, lines=0)
        self.assertEqual(2, result.code)

    def test_a_junk_value_in_any_option_costs_one_line_and_nothing_else(self):
        table = (harness.SOURCE / "src/config/options.def").read_text()
        names = re.findall(r'CUPOOL_(?:OPTION|EXPERT)\(\s*\w+,\s*\w+,\s*"(CUPOOL_\w+)"', table)
        self.assertGreater(len(names), 30)
        for name in names:
            with self.subTest(option=name):
                # The report is off, so its file is not written; a file of metrics is.
                junk = {"CUPOOL_STATS_FILE": "/no/such/directory/%q", "CUPOOL_METRICS_FILE": "/no/such/directory/x"}.get(
                    name, "\x01junk value")
                # A report that could not be switched off says its five lines besides.
                self.assert_runs_on([harness.victim("dlsym")], env={name: junk}, lines=6 if name == "CUPOOL_STATS" else 1)

    def test_an_unknown_option_costs_one_line_and_nothing_else(self):
        result = self.assert_runs_on([harness.victim("dlsym")], env={"CUPOOL_BACKENDS": "off"})
        self.assertIn("did you mean CUPOOL_BACKEND?", result.err)

    def test_an_unreadable_proc_changes_nothing(self):
        shim = fakes.without_proc(self.scratch)
        for name in ("linked", "dlsym", "threads"):
            self.assert_runs_on([harness.victim(name)], before=[shim], lines=1)

    def test_the_shim_that_hides_proc_does_hide_it(self):
        shim = fakes.without_proc(self.scratch)
        done = harness.run([harness.victim("plain")], preload=[shim])
        self.assertIn("threads=-3 files=-1", done.out)

    def test_closed_standard_streams_change_nothing(self):
        self.need_native()
        script = '"$0" >&- 2>&-; echo $?'
        bare = harness.run(["sh", "-c", script, harness.victim("dlsym")])
        self.assertEqual(bare.out, harness.with_cupool(["sh", "-c", script, harness.victim("dlsym")]).out)


if __name__ == "__main__":
    harness.main()
