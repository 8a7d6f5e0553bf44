"""The report at exit: by which ends it comes, where it goes, what it looks like, and who stays silent."""

import json
import os
import signal
import stat
import subprocess

import harness
import lab
from lab import MIB, fill, play

STEPS = ["a:x:1000", "a:y:3000000", "f:x"]


# A shell that runs the tests in the background has them ignore it, and so would every program they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


class ReportTest(harness.TestCase):
    def run_steps(self, *steps, **options):
        """The scripted victim with options, the report where they say."""
        env = {f"CUPOOL_{name.upper()}": str(value) for name, value in options.items()}
        env.setdefault("CUPOOL_STATS", "summary")
        return harness.with_cupool([lab.PROGRAM, *steps], env=env, driver="sim")

    # ---- Forms.

    def test_the_summary_is_short_and_on_stderr(self):
        done = self.run_steps(*STEPS)
        lines = done.err.splitlines()
        self.assertTrue(1 <= len(lines) <= 5, done.err)
        self.assertTrue(all(line.startswith("cupool: ") for line in lines), done.err)
        self.assertIn("2 allocations", done.err)
        self.assertIn("lanes", done.err)

    def test_a_program_that_allocated_nothing_prints_no_summary(self):
        self.assertEqual("", self.run_steps("s").err)

    def test_off_prints_nothing(self):
        self.assertEqual("", self.run_steps(*STEPS, stats="off").err)

    def test_the_text_form_explains_every_counter_that_counted(self):
        err = self.run_steps(*STEPS, stats="text").err
        self.assertRegex(err, r"allocations +2  allocations of device memory that succeeded")
        self.assertRegex(err, r"up to 1 KiB +1 ")
        self.assertIn("CUPOOL_STATS=text", err)
        self.assertNotIn("captures", err)

    def test_the_json_form_is_one_line_with_options_and_devices(self):
        done = self.run_steps(*STEPS, stats="json", thread_cache="2M")
        self.assertEqual(1, done.err.count("\n"))
        report = json.loads(done.err)
        self.assertEqual((2, 1), (report["allocations"], len(report["devices"])))
        self.assertEqual("2M", report["options"]["CUPOOL_THREAD_CACHE"])
        self.assertEqual("script", report["program"])

    def test_the_mode_and_why_it_changed_are_told(self):
        report = play(*STEPS).counters
        self.assertEqual(("lanes", ""), (report["mode"], report["mode_reason"]))
        report = play(*STEPS, streams="fences").counters
        self.assertEqual(("fences", "CUPOOL_STREAMS=fences"), (report["mode"], report["mode_reason"]))
        self.assertEqual("native", play(*STEPS, backend="native").counters["mode"])
        self.assertEqual("off", play(*STEPS, backend="off").counters["mode"])

    # ---- Ends.

    def assert_reported_after(self, how, code):
        played = play(*STEPS, f"x:{how}")
        self.assertEqual(code, played.code, played.err)
        self.assertEqual(2, played.counters.get("allocations"), how)

    def test_exit_reports(self):
        self.assert_reported_after("exit", 0)

    def test_an_abrupt_exit_reports(self):
        self.assert_reported_after("_exit", 0)

    def test_a_quick_exit_reports(self):
        self.assert_reported_after("quick", 0)

    def test_an_abort_reports_and_still_aborts(self):
        lab.needs_signals(self)
        self.assert_reported_after("abort", -6)

    def test_a_termination_reports_and_still_terminates(self):
        lab.needs_signals(self)
        self.assert_reported_after("term", -15)

    def test_the_process_reports_once_however_it_ends(self):
        err = self.run_steps(*STEPS, "x:exit", stats="json").err
        self.assertEqual(1, err.count('{"cupool"'))

    def test_the_summary_comes_when_a_signal_ends_the_program(self):
        lab.needs_signals(self)
        for how, number in (("term", 15), ("int", 2), ("hup", 1)):
            done = self.run_steps(*STEPS, f"x:{how}")
            self.assertEqual(-number, done.code)
            self.assertIn("2 allocations", done.err)
            played = play(*STEPS, f"x:{how}")
            self.assertEqual((-number, 2), (played.code, played.counters.get("allocations")), how)

    def test_signals_are_left_alone_where_nothing_is_reported(self):
        done = self.run_steps(*STEPS, "x:term", stats="off")
        self.assertEqual((-15, ""), (done.code, done.err))

    def test_a_signal_asks_for_a_report_while_the_program_runs_on(self):
        lab.needs_signals(self)
        done = self.run_steps("a:x:1000", "x:usr2", "a:y:1000", stats="json", stats_signal="USR2")
        first, last = [json.loads(line) for line in done.err.splitlines()]
        self.assertEqual((1, 2), (first["allocations"], last["allocations"]))
        self.assertEqual(-12, self.run_steps("a:x:1000", "x:usr2", stats="json").code)

    # ---- The file.

    def test_the_file_gets_the_names_of_the_process(self):
        pattern = str(self.scratch / "%e-%r-%h-%p-%%.json")
        self.run_steps(*STEPS, stats="json", stats_file=pattern)
        (name,) = os.listdir(self.scratch)
        report = json.loads((self.scratch / name).read_text())
        self.assertEqual(f"script-none-{os.uname().nodename}-{report['pid']}-%.json", name)

    def test_the_rank_comes_from_the_launcher(self):
        for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "PMIX_RANK"):
            path = self.scratch / f"{variable}-3.json"
            env = {"CUPOOL_STATS": "json", "CUPOOL_STATS_FILE": str(self.scratch / f"{variable}-%r.json"), variable: "3"}
            harness.with_cupool([lab.PROGRAM, *STEPS], env=env, driver="sim")
            self.assertEqual("3", json.loads(path.read_text())["rank"])

    def test_the_file_is_for_its_owner_alone_and_replaces_an_old_one(self):
        path = self.scratch / "report.json"
        path.write_text("old")
        os.chmod(path, 0o666)
        self.run_steps(*STEPS, stats="json", stats_file=path)
        self.assertEqual(0o600, stat.S_IMODE(path.stat().st_mode))
        self.assertEqual(2, json.loads(path.read_text())["allocations"])
        self.assertEqual(["report.json"], os.listdir(self.scratch))

    def test_a_summary_with_a_file_prints_both(self):
        path = self.scratch / "report.json"
        self.assertIn("2 allocations", self.run_steps(*STEPS, stats_file=path).err)
        self.assertEqual(2, json.loads(path.read_text())["allocations"])
        text = self.scratch / "report.txt"
        self.run_steps(*STEPS, stats_file=text)
        self.assertIn("allocations of device memory", text.read_text())

    def test_the_report_never_follows_a_link(self):
        target = self.scratch / "target"
        target.write_text("precious")
        link = self.scratch / "link.json"
        link.symlink_to(target)
        done = self.run_steps(*STEPS, stats="json", stats_file=link)
        self.assertEqual("precious", target.read_text())
        self.assertTrue(link.is_symlink())
        self.assertIn("is a symbolic link", done.err)
        self.assertIn('"allocations":2', done.err)

    def test_a_file_that_cannot_be_made_is_told_and_the_report_is_not_lost(self):
        done = self.run_steps(*STEPS, stats="json", stats_file=self.scratch / "no" / "such" / "folder.json")
        self.assertIn("cannot write the report", done.err)
        self.assertIn('"allocations":2', done.err)
        self.assertEqual(0, done.code)

    def test_a_full_disk_leaves_no_half_report(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        done = self.run_steps(*STEPS, stats="json", stats_file="/dev/full")
        self.assertIn("cannot write the report to /dev/full: no space is left on the device", done.err)
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    def test_a_child_that_runs_another_program_reports_for_itself_alone(self):
        self.need_native()
        command = ["sh", "-c", f"{lab.PROGRAM} a:x:1000; {lab.PROGRAM} a:x:1000 a:y:1000"]
        env = {"CUPOOL_STATS": "json", "CUPOOL_STATS_FILE": str(self.scratch / "%p.json")}
        harness.with_cupool(command, env=env, driver="sim")
        counts = sorted(json.loads(p.read_text())["allocations"] for p in self.scratch.iterdir())
        self.assertEqual([1, 2], counts)


if __name__ == "__main__":
    harness.main()
