"""cupool doctor tells the truth about a program however its processes end, and says the same as text and as JSON."""

import json
import os
import re
import signal
import struct
import subprocess

import harness
import lab

COMMAND = harness.BUILD / "cupool"
ENDS = harness.BUILD / "tests" / "report" / "ends"
SERVED = {"allocations": 20, "forwarded_allocations": 0, "failed_allocations": 0}
# What each work leaves in the counts, and the beginning of the verdict.
WORKS = {
    "none": ({"allocations": 0, "failed_allocations": 0}, "there was nothing for cupool to serve"),
    "served": (SERVED, "cupool serve"),
    "managed": ({"allocations": 0, "managed_allocations": 5}, "cupool serve"),
    "ordered": ({"allocations": 0, "async_allocations": 1}, "there was nothing for cupool to serve"),
    "failed": ({"allocations": 0, "failed_allocations": 1}, "every allocation that cupool was asked for failed"),
    "spilled": ({"allocations": 20, "spilled_allocations": 12, "spilled_bytes": 12 * 8 << 20}, "cupool serve"),
}
SPILL = {"CUPOOL_LIMIT": "64M", "CUPOOL_SPILL": "1G"}
EXITS = {"return": 0, "exit": 3, "_exit": 4, "raw": 5, "quick": 6, "last": 0}
SIGNALS = {"abort": "SIGABRT", "segv": "SIGSEGV", "overflow": "SIGSEGV", "kill": "SIGKILL", "term": "SIGTERM", "thread_kill": "SIGKILL"}


class DoctorTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.need_no_sanitizer("its runtime handles crashes itself")

    def examine(self, *words, env=None, tool=COMMAND):
        """What doctor says as JSON, its exit code, and its text in one line."""
        told = harness.run([tool, "doctor", "--json", "--", *words], env=env, driver="sim")
        text = harness.run([tool, "doctor", "--", *words], env=env, driver="sim")
        self.assertEqual(told.code, text.code)
        return json.loads(told.out), told.code, " ".join(text.out.split())

    def assert_counts(self, expected, process):
        self.assertEqual(expected, {name: process[name] for name in expected})

    def assert_same_said(self, answer, text):
        """All sentences and figures of the JSON are in the text."""
        self.assertTrue(text.endswith("verdict: " + answer["verdict"]), text)
        self.assertIn("the program " + answer["end"]["words"], text)
        for sentence in answer["advice"] + answer["settings"]:
            # The folder is another one in each run.
            self.assertIn(re.split(r"/tmp/", sentence)[0].strip(), text)
        self.assertEqual(answer["still_runs"], "processes of the program still run" in text)
        for process in answer["processes"]:
            reason = f" ({process['mode_reason']})" if process["mode_reason"] else ""
            end = f"; {process['end']['words']}" if process["end"]["words"] else ""
            self.assertIn(f"]: came by {', '.join(process['doors'])}; mode {process['mode']}{reason}{end}", text)
            ending = "" if process["allocations"] == 1 else "s"
            self.assertIn(f"{process['allocations']} allocation{ending}, {process['forwarded_allocations']} past the pool, "
                          f"{process['failed_allocations']} failed; stream-ordered {process['async_allocations']}, mapped "
                          f"{process['mapped_allocations']}, arrays {process['array_allocations']}, managed {process['managed_allocations']}", text)
            self.assertEqual(process["spilled_allocations"] > 0, f"{process['spilled_allocations']} spilled to host memory" in text)
            for sentence in process["advice"]:
                self.assertIn(sentence, text)

    def test_doctor_is_right_about_every_work_and_every_end(self):
        for work, (counts, verdict) in WORKS.items():
            for how in (*EXITS, *SIGNALS):
                with self.subTest(work=work, how=how):
                    answer, code, text = self.examine(ENDS, work, how, env=SPILL if work == "spilled" else {})
                    (process,) = answer["processes"]
                    self.assert_counts(counts, process)
                    self.assertTrue(answer["verdict"].startswith(verdict), answer["verdict"])
                    self.assertTrue(process["all_counts_are_known"])
                    if how in SIGNALS:
                        number = getattr(signal, SIGNALS[how])
                        self.assertEqual((128 + number, number, number), (code, answer["end"]["signal"], process["end"]["signal"]))
                        self.assertIn(f"was killed by {SIGNALS[how]}", answer["verdict"])
                    else:
                        self.assertEqual((EXITS[how],) * 3, (code, answer["end"]["exit_code"], process["end"]["exit_code"]))
                        self.assertEqual(EXITS[how] != 0, "exit code" in answer["verdict"])
                    self.assert_same_said(answer, text)

    def test_a_program_that_serves_well_and_ends_well_needs_no_change_and_no_other_does(self):
        for how in (*EXITS, *SIGNALS):
            answer, _, _ = self.examine(ENDS, "served", how)
            self.assertEqual(EXITS.get(how) == 0, answer["verdict"] == "cupool serves this program; nothing needs to change.", answer["verdict"])

    def test_a_program_killed_amid_its_threads_leaves_every_count(self):
        book = self.scratch / "book"
        for how in ("kill", "segv", "raw", "exec"):
            with self.subTest(how=how):
                told = harness.run([COMMAND, "doctor", "--json", "--", ENDS, "threads", how, book], driver="sim")
                (process,) = json.loads(told.out)["processes"]
                (booked,) = struct.unpack("L", book.read_bytes())
                # Each of the four threads may have had a block that was not booked yet.
                self.assertTrue(booked <= process["allocations"] <= booked + 4, (booked, process["allocations"]))
                book.unlink()

    def test_a_program_that_becomes_another_one_is_reported_with_what_it_did_before(self):
        answer, code, text = self.examine(ENDS, "served", "exec")
        (process,) = answer["processes"]
        self.assert_counts(SERVED, process)
        self.assertEqual(0, code)
        self.assert_same_said(answer, text)
        answer, code, text = self.examine(ENDS, "served", "again")
        first, second = answer["processes"]
        self.assertEqual(first["pid"], second["pid"])
        self.assertEqual(["became another program", "ended with exit code 0"], [one["end"]["words"] for one in (first, second)])
        for process in (first, second):
            self.assert_counts(SERVED, process)
        self.assert_same_said(answer, text)

    def test_processes_that_the_program_leaves_behind_are_waited_for_and_reported(self):
        for how in ("child", "early", "daemon"):
            for work in ("served", "none"):
                with self.subTest(how=how, work=work):
                    answer, code, text = self.examine(ENDS, work, how)
                    (process,) = answer["processes"]
                    self.assert_counts(WORKS[work][0], process)
                    self.assertEqual(0, code)
                    self.assertTrue(answer["verdict"].startswith(WORKS[work][1]), answer["verdict"])
                    self.assertFalse(answer["still_runs"])
                    # Whom its parent has waited for, only that one knows.
                    self.assertEqual(None if how == "child" else 0, process["end"]["exit_code"])
                    self.assert_same_said(answer, text)

    def test_every_process_that_failed_is_counted_in_the_verdict(self):
        for program, words in ((["sh", "-c", '"$0" served exit & "$0" served exit & "$0" served return & exec true'], "2 failed: "),
                               (["sh", "-c", 'for i in 1 2 3 4 5; do "$0" served kill & done 2> /dev/null; wait; true'], "5 failed, or may have: ")):
            with self.subTest(words=words):
                answer, _, text = self.examine(*program, ENDS)
                ends = [f"{one['pid']} {one['end']['words']}" for one in answer["processes"] if one["end"]["words"] != "ended with exit code 0"]
                more = f"; and {len(ends) - 3} more" if len(ends) > 3 else ""
                self.assertIn(f"of whose processes {words}{'; '.join(ends[:3])}{more}", answer["verdict"])
                # The processes have other numbers in each run.
                self.assertEqual(*(re.sub(r"\b\d{3,}\b", "N", said) for said in (answer["verdict"], text.partition("verdict: ")[2])))

    def test_a_process_that_was_cut_off_is_told_from_one_that_ended_by_itself(self):
        for how, words in (("segv", "ended without its exit handlers"), ("kill", "ended without its exit handlers"), ("return", "ended by itself"),
                           ("_exit", "ended by itself")):
            with self.subTest(how=how):
                # The shell has waited for it: how it ended is not known to anybody else.
                answer, code, text = self.examine("sh", "-c", '"$0" served "$1" 2> /dev/null; true', ENDS, how)
                (process,) = answer["processes"]
                self.assertEqual((0, None, None), (code, process["end"]["signal"], process["end"]["exit_code"]))
                self.assertTrue(process["end"]["words"].startswith(words), process["end"])
                self.assertEqual(words == "ended by itself", "nothing needs to change" in answer["verdict"], answer["verdict"])
                self.assert_counts(SERVED, process)
                # The number of the process is another one in each run.
                self.assertIn(re.sub(r".*process \d+ ", "", answer["verdict"]), text)

    def test_what_still_runs_is_reported_as_far_as_it_came(self):
        for how, ending in (("orphan", "still runs"), ("holds", "ended with exit code 0")):
            with self.subTest(how=how):
                environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPOOL_")}
                environment |= {"LD_LIBRARY_PATH": str(harness.BUILD / "sim"), **harness.ALONE}
                doctor = subprocess.Popen([COMMAND, "doctor", "--", ENDS, "served", how], env=environment, stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True)
                self.assertEqual("left\n", doctor.stdout.readline())
                # It waits for more of what was left; this ends the waiting.
                doctor.send_signal(signal.SIGTERM)
                text = self.read_to_verdict(doctor.stdout)
                doctor.stdin.close()
                self.assertEqual(-signal.SIGTERM, doctor.wait())
                doctor.stdout.close()
                self.assertIn("mode lanes; " + ending, text)
                self.assertIn("20 allocations, 0 past the pool", text)
                self.assertIn("verdict: cupool serves this program; processes of it still run, so that this holds so far.", text)

    def read_to_verdict(self, stream):
        """The text of a doctor whose program has left a process that holds its stdout: there is no end of file."""
        lines = []
        while "verdict: " not in "".join(lines) or not lines[-1].endswith(".\n"):
            lines.append(stream.readline())
            self.assertNotEqual("", lines[-1], lines)
        return " ".join("".join(lines).split())

    def test_a_fork_child_takes_nothing_from_the_counts_of_its_parent(self):
        answer, _, _ = self.examine(lab.PROGRAM, "a:x:1000", "k", "a:y:1000", "k", "t:2:1000:50")
        (process,) = answer["processes"]
        self.assertEqual(102, process["allocations"])

    def test_a_launcher_without_memory_is_no_reason_to_change_anything(self):
        # The parent looks up a function, and the child does the work.
        answer, _, text = self.examine(harness.victim("forks"), "looked")
        self.assertEqual([0, 31], sorted(process["allocations"] for process in answer["processes"]))
        self.assertEqual("cupool serves this program; nothing needs to change.", answer["verdict"])
        self.assert_same_said(answer, text)

    def test_the_mode_is_known_of_a_program_that_is_killed(self):
        for streams in ("fences", "exact"):
            answer, _, text = self.examine(ENDS, "served", "kill", env={"CUPOOL_STREAMS": streams})
            (process,) = answer["processes"]
            self.assertEqual((streams, f"CUPOOL_STREAMS={streams}"), (process["mode"], process["mode_reason"]))
            self.assert_same_said(answer, text)

    def test_a_change_of_the_mode_is_known_of_a_program_that_aborts(self):
        network = harness.compile_shared(self.scratch, "libfabric.so.1", "int fake;", "-Wl,-soname,libfabric.so.1")
        device = '#include <string.h>\nint access(const char* path, int mode) { (void)mode; return strcmp(path, "/dev/cxi0") == 0 ? 0 : -1; }'
        pretend = harness.compile_shared(self.scratch, "libpretend.so", device)
        steps = ("a:x:1000", f"L:{network}", "a:y:1000", "x:abort")
        # Doctor looks for the program by access(), too: as the shell's child it has the real one.
        command = ["sh", "-c", 'LD_PRELOAD="$LD_PRELOAD:$0" exec "$@"', pretend, lab.PROGRAM, *steps]
        answer, code, text = self.examine(*command)
        (process,) = answer["processes"]
        self.assertEqual((128 + signal.SIGABRT, "exact", "libfabric is loaded"), (code, process["mode"], process["mode_reason"]))
        self.assert_same_said(answer, text)

    def test_the_reason_of_a_mode_is_known_when_a_program_ends_lanes(self):
        answer, _, text = self.examine(harness.victim("tomorrow"), "dlsym")
        (process,) = answer["processes"]
        self.assertEqual(("fences", "an entry point that cupool does not know was handed out"), (process["mode"], process["mode_reason"]))
        self.assert_same_said(answer, text)

    def test_the_cause_of_a_shortage_is_known_of_a_program_that_is_killed(self):
        for how in ("return", "segv", "kill"):
            answer, _, text = self.examine(ENDS, "spilled", how, env={"CUPOOL_LIMIT": "64M"})
            (process,) = answer["processes"]
            self.assertTrue(any("CUPOOL_LIMIT is 64 MiB" in one for one in process["advice"]), process["advice"])
            self.assert_same_said(answer, text)

    def test_managed_memory_counts_as_served_where_the_pool_serves_it_and_nowhere_else(self):
        for env, served in (({}, True), ({"CUPOOL_BACKEND": "native"}, True), ({"CUPOOL_MANAGED": "no"}, False), ({"CUPOOL_BACKEND": "off"}, False),
                            ({"CUPOOL_EXCEPT": "ends"}, False)):
            with self.subTest(env):
                answer, _, text = self.examine(ENDS, "managed", "return", env=env)
                (process,) = answer["processes"]
                self.assert_counts({"managed_allocations": 5, "forwarded_managed": 0 if served else 5}, process)
                expected = "cupool serves this program; nothing needs to change." if served else \
                    "cupool served none of the program's allocations; see what to change above."
                self.assertEqual(expected, answer["verdict"])
                self.assertEqual(0 if served else 1, len(process["advice"]), process["advice"])
                self.assert_same_said(answer, text)

    def test_managed_memory_that_is_refused_is_an_allocation_that_failed(self):
        device = {"CUPOOL_SIM_MEMORY": "256M"}
        for env in ({}, {"CUPOOL_MANAGED": "no"}):
            with self.subTest(env):
                answer, _, text = self.examine(lab.PROGRAM, f"a:x:{100 * lab.MIB}", f"g:y:{200 * lab.MIB}", env={**device, **env})
                self.assert_counts({"allocations": 1, "failed_allocations": 1, "managed_allocations": 0}, answer["processes"][0])
                self.assert_same_said(answer, text)
                answer, _, _ = self.examine(lab.PROGRAM, f"g:y:{300 * lab.MIB}", env={**device, **env})
                self.assertTrue(answer["verdict"].startswith("every allocation that cupool was asked for failed"), answer["verdict"])

    def test_what_is_larger_than_the_device_is_called_so(self):
        for env in ({}, {"CUPOOL_BACKEND": "native"}, {"CUPOOL_SPLIT": "no"}, {"CUPOOL_OOM_REPORTS": "0"}):
            with self.subTest(env):
                answer, _, text = self.examine(lab.PROGRAM, "a:x:1000", f"a:y:{6 << 30}", env=env)
                self.assertEqual(["1 allocation asked for more than the device has, which fails without cupool, too."],
                                 answer["processes"][0]["advice"])
                self.assert_same_said(answer, text)

    def test_a_setting_that_sent_nothing_back_is_not_to_be_changed(self):
        # Half of a full device is freed, and goes back for a large block: with any limit of what is kept.
        steps = (*lab.fill(128, 2 * lab.MIB), *[f"f:b{i}" for i in range(0, 128, 2)], *[f"f:b{i}" for i in range(1, 128, 2)], f"a:z:{200 * lab.MIB}")
        answer, _, _ = self.examine(lab.PROGRAM, *steps, env={"CUPOOL_SIM_MEMORY": "256M"})
        self.assertEqual([], answer["processes"][0]["advice"])
        answer, _, _ = self.examine(lab.PROGRAM, *steps, env={"CUPOOL_SIM_MEMORY": "256M", "CUPOOL_MAX_CACHED": "4M"})
        (advice,) = answer["processes"][0]["advice"]
        self.assertIn("a larger CUPOOL_MAX_CACHED keeps more", advice)

    def test_frees_that_failed_are_counted_and_a_way_to_find_them_is_named(self):
        answer, _, text = self.examine(lab.PROGRAM, "a:x:1000", "f:x", "f:x", "w")
        (process,) = answer["processes"]
        self.assertEqual(2, process["failed_frees"])
        self.assertIn("2 frees failed", text)
        self.assertIn("CUPOOL_CHECK=yes", process["advice"][0])
        self.assertEqual("cupool serves this program; see what to change above.", answer["verdict"])
        self.assert_same_said(answer, text)

    def test_an_old_driver_is_part_of_the_verdict(self):
        answer, _, text = self.examine(ENDS, "served", "return", env={"CUPOOL_SIM_DRIVER_VERSION": "12040"})
        self.assertEqual("cupool serves this program; see what to change above.", answer["verdict"])
        self.assertTrue(any("older than CUDA 12.5" in one for one in answer["advice"]))
        self.assert_same_said(answer, text)
        alone = harness.run([COMMAND, "doctor"], env={"CUPOOL_SIM_DRIVER_VERSION": "12040"}, driver="sim")
        self.assertTrue(" ".join(alone.out.split()).endswith("verdict: cupool works here; see what to change above."), alone.out)

    def test_what_cannot_be_seen_is_not_said(self):
        for words in (["true"], ["sh", "-c", "kill -9 $$"]):
            answer, _, text = self.examine(*words)
            self.assertEqual([], answer["processes"])
            self.assertTrue(answer["verdict"].startswith("cupool had no part in this program that can be seen"), answer["verdict"])
            self.assertTrue(any(one.startswith("No process reported") for one in answer["advice"]))
            self.assert_same_said(answer, text)

    def test_counts_that_cannot_be_kept_are_no_harm_to_the_program(self):
        taken = self.scratch / "taken"
        taken.symlink_to(self.scratch / "elsewhere")
        for place in ("/no/such/folder/counts", "/dev/null/counts", f"{self.scratch}/{'x' * 300}"):
            done = harness.with_cupool([ENDS, "served", "return"], env={"CUPOOL_COUNTS_FILE": place}, driver="sim")
            self.assertEqual((0, ""), (done.code, done.out))
            self.assertIn(f"cannot keep the counts in {place}", done.err)
        harness.with_cupool([ENDS, "served", "return"], env={"CUPOOL_COUNTS_FILE": str(taken)}, driver="sim")
        self.assertEqual(["taken", "taken.2"], sorted(one.name for one in self.scratch.iterdir()))

    def test_counts_for_which_there_is_no_room_are_not_begun(self):
        # A store into a page without a block would be a SIGBUS.
        self.mount("none", self.scratch, "tmpfs", data="size=64k")
        done = harness.with_cupool([ENDS, "served", "return"], env={"CUPOOL_COUNTS_FILE": str(self.scratch / "counts")}, driver="sim")
        self.assertEqual((0, ""), (done.code, done.out))
        self.assertIn("cannot keep the counts in ", done.err)
        self.assertEqual([], list(self.scratch.iterdir()))

    def test_doctor_stands_whatever_the_program_leaves_in_its_folder(self):
        keep = 'd=${CUPOOL_COUNTS_FILE%/*}; "$0" served return; for f in "$d"/*; do '
        for damage in ('head -c 100000 "$f" > "$d/1"', 'tr "\\0" "\\377" < "$f" > "$d/2"', 'cp "$f" "$d/3"; head -c 4096 /dev/urandom | dd of="$d/3" '
                       "bs=4096 seek=2 conv=notrunc 2>&1", 'dd if=/dev/urandom of="$f" bs=65536 seek=1 count=40 conv=notrunc,nocreat 2>&1',
                       'mkfifo "$d/4"', 'ln -s /dev/zero "$d/5"'):
            with self.subTest(damage=damage):
                done = harness.run([COMMAND, "doctor", "--json", "--", "bash", "-c", f"{keep} {damage}; done", ENDS], driver="sim")
                self.assertEqual(0, done.code, done.err)
                self.assertIn("verdict", json.loads(done.out))


if __name__ == "__main__":
    harness.main()
