"""The verbs of the command: what each prints, for people and as JSON, and its exit codes."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import termios

import harness
import lab

COMMAND = harness.BUILD / "cupool"


class CommandsTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()

    def cupool(self, *words, env=None):
        """Runs the command itself; the simulated driver is in reach."""
        return harness.run([COMMAND, *words], env=env, driver="sim")

    # ---- run.

    def test_run_sets_options_by_name(self):
        done = self.cupool("run", "--stats=json", "--set", "max_cached=1G", "--set=CUPOOL_STREAMS=fences", "--set",
                           "thread-cache=2M", "--", lab.PROGRAM, "a:x:1000")
        options = json.loads(done.err)["options"]
        self.assertEqual(["1G", "fences", "2M"],
                         [options[f"CUPOOL_{n}"] for n in ("MAX_CACHED", "STREAMS", "THREAD_CACHE")])

    def test_run_refuses_an_option_or_a_value_that_makes_no_sense(self):
        for words, said in ((["--set", "max_cachd=1G"], "CUPOOL_MAX_CACHED"), (["--set", "limit=junk"], "junk"),
                            (["--set", "limit"], "name=value"), (["--frob"], "--frob"), (["--stats=odd"], "odd")):
            done = self.cupool("run", *words, "--", "true")
            self.assertEqual(2, done.code, words)
            self.assertIn(said, done.err)
            self.assertNotIn("using", done.err)
        for words, said in ((["--set"], "name=value"), (["--stats"], "CUPOOL_STATS"), (["--json=yes"], "--json takes no value"),
                            (["--set="], "name=value")):
            done = self.cupool("run", *words)
            self.assertEqual(2, done.code, words)
            self.assertIn(said, done.err)

    def test_run_says_that_nothing_was_started_and_starts_what_is_only_noted(self):
        done = self.cupool("run", "--set", "limit=junk", "--", "echo", "started")
        self.assertEqual((2, "", "cupool: CUPOOL_LIMIT=junk is not a size; nothing was started\n"), (done.code, done.out, done.err))
        noted = self.cupool("run", "--set", "limit=16M", "--set", "segment_min=20M", "--", lab.PROGRAM, "a:x:1000")
        self.assertEqual(0, noted.code)
        self.assertIn("CUPOOL_LIMIT=16M is below CUPOOL_SEGMENT_MIN=20M", noted.err)

    def test_run_hands_a_program_its_words_as_they_are(self):
        words = ["a", "", "--", "--json", "++", "[x,y]", "-h", "--set=1", "/x", '"b"', "-V", "--no-such"]
        for before in ([], ["--"], ["--set", "log=quiet"], ["--set=log=quiet", "--"]):
            done = self.cupool("run", *before, "printf", "<%s>", *words)
            self.assertEqual((0, "".join(f"<{word}>" for word in words)), (done.code, done.out))
        self.assertIn("cannot run --json", self.cupool("run", "--", "--json").err)

    def test_run_needs_a_program(self):
        self.assertEqual(2, self.cupool("run").code)
        self.assertEqual(2, self.cupool("run", "--json", "--").code)

    # ---- Help.

    VERBS = ("run", "doctor", "compare", "merge", "options", "help", "version")

    def test_help_and_version_come_in_every_usual_spelling(self):
        for words in (["help"], ["-h"], ["--help"]):
            done = self.cupool(*words)
            self.assertEqual((0, ""), (done.code, done.err))
            for verb in self.VERBS:
                self.assertIn(f"  cupool {verb}", done.out)
        for words in (["version"], ["--version"], ["-V"]):
            self.assertRegex(self.cupool(*words).out, r"^cupool \d+\.\d+\.\d+(-dev)? \(commit [0-9a-z]+\)\n$")

    def test_help_behind_every_verb_explains_it(self):
        for verb in self.VERBS:
            texts = {self.cupool(*words).out for words in ([verb, "-h"], [verb, "--help"], ["help", verb])}
            self.assertEqual(1, len(texts), verb)
            self.assertIn(f"usage: cupool {verb}", texts.pop())
        # Behind a program's name it is the program's.
        self.assertEqual("-h\n", self.cupool("run", "--", "echo", "-h").out)
        self.assertEqual("-h\n", self.cupool("run", "--set", "log=quiet", "echo", "-h").out)

    def test_near_misses_are_met_with_a_hint(self):
        for words, hint in ((["run", "--limit=3G", "x"], "did you mean --set limit=3G?"),
                            (["run", "--limit", "3G", "x"], "did you mean --set limit=value?"),
                            (["run", "--max-cachd=1G", "x"], "did you mean --set max_cached=1G?"),
                            (["run", "--stat", "text"], "did you mean --stats?"), (["run", "--jsn", "x"], "did you mean --json?"),
                            (["doctor", "--jason"], "did you mean --json?"), (["docter"], "did you mean cupool doctor?"),
                            (["option"], "did you mean cupool options?"), (["options", "lmit"], "did you mean CUPOOL_LIMIT?"),
                            (["echo"], "to run that program: cupool run -- echo"), (["xyzzyx"], "cupool help lists them"),
                            ([], "see `cupool help`"), (["help", "docter"], "did you mean cupool doctor?")):
            done = self.cupool(*words)
            self.assertEqual(2, done.code, words)
            self.assertIn(hint, done.err)

    def test_help_fits_the_terminal(self):
        for columns in (40, 80, 132):
            for words in (["help"], ["help", "run"], ["options", "--all"]):
                lines = self.at_terminal(columns, *words).splitlines()
                self.assertGreater(len(lines), 5)
                longest = max(lines, key=len)
                self.assertLessEqual(len(longest), max(columns, 0), longest)

    def at_terminal(self, columns, *words):
        """What the command prints to a terminal of that width."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        done = subprocess.Popen([str(COMMAND), *words], stdout=slave, stdin=subprocess.DEVNULL)
        os.close(slave)
        out = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            out += part
        done.wait()
        os.close(master)
        return out.decode().replace("\r\n", "\n")

    def test_zsh_completes_the_flags_of_a_verb(self):
        zsh = shutil.which("zsh")
        if zsh is None:
            self.skipTest("no zsh here")
        script = harness.SOURCE / "src/tools/completion/_cupool"
        # In place of zsh's own helpers: what they are asked to complete, and with what.
        shell = f"""_describe() {{ print -r -- "describe $1: ${{(P)2}}" }}
          _arguments() {{ print -r -- "$CURRENT of $words: $@"; print -r -- "names $names" }}
          complete() {{ local -a words=("$@"); local CURRENT=$#; source {script} }}
          complete cupool r; complete cupool run --set lim"""
        done = harness.run([zsh, "-f", "-c", shell], env={"PATH": f"{harness.BUILD}:{os.environ['PATH']}"})
        self.assertEqual("", done.err)
        verbs, flags, names = done.out.splitlines()
        self.assertIn("describe verb: run:run a program", verbs)
        self.assertTrue(flags.startswith("3 of run --set lim: "), flags)
        self.assertIn(" limit ", names)

    def test_bash_completes_verbs_flags_and_options(self):
        script = harness.SOURCE / "src/tools/completion/cupool.bash"
        for line, expected in ((["cupool", "do"], "doctor"), (["cupool", "run", "--s"], "--set --stats"),
                               (["cupool", "run", "--set", "max"], "max_cached="), (["cupool", "options", "CUPOOL_LIM"], "CUPOOL_LIMIT"),
                               (["cupool", "run", "--stats", "j"], "json"), (["cupool", "compare", "-n", "3", "--j"], "--json"), (["cupool", "c"], "compare"), (["cupool", "help", "m"], "merge")):
            words = " ".join(f"'{w}'" for w in line)
            command = f". {script}; COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _cupool; echo ${{COMPREPLY[@]}}"
            done = harness.run(["bash", "-c", command], env={"PATH": f"{harness.BUILD}:{os.environ['PATH']}"}, driver="sim")
            self.assertEqual((expected + "\n", ""), (done.out, done.err))

    # ---- doctor.

    def test_doctor_ends_with_a_verdict(self):
        for words, env, verdict in ((["doctor"], {}, "cupool works here."),
                                    (["doctor"], {"CUPOOL_LIMT": "1"}, "cupool works here, without the settings that it did not understand."),
                                    (["doctor", "--", lab.PROGRAM, "a:x:1000"], {}, "cupool serves this program; nothing needs to change."),
                                    (["doctor", "--", lab.PROGRAM, "s"], {}, "there was nothing for cupool to serve."),
                                    (["doctor", "--", lab.PROGRAM, "a:x:1"], {"CUPOOL_BACKEND": "off"},
                                     "cupool served none of the program's allocations; see what to change above."),
                                    (["doctor", "--", "true"], {},
                                     "cupool had no part in this program that can be seen.")):
            said = " ".join(self.cupool(*words, env=env).out.split())
            self.assertTrue(said.endswith("verdict: " + verdict), said)

    def test_doctor_json_is_json_alone(self):
        done = self.cupool("doctor", "--json", "--", lab.PROGRAM, "a:x:1000", "p:live_bytes")
        answer = json.loads(done.out)
        self.assertEqual("cupool serves this program; nothing needs to change.", answer["verdict"])
        self.assertIn("live_bytes 1024", done.err)

    def test_doctor_stops_at_a_program_that_does_not_exist(self):
        for name, code, why in (("no-such-program", 127, "No such file"), ("/no/such/program", 127, "No such file"), ("/etc/passwd", 126, "Permission denied")):
            done = self.cupool("doctor", "--", name)
            self.assertEqual((code, "", f"cupool: cannot run {name}: {why}"), (done.code, done.out, done.err[:len(f"cupool: cannot run {name}: {why}")]))

    def test_doctor_describes_the_machine(self):
        done = self.cupool("doctor")
        self.assertEqual(0, done.code, done.out)
        self.assertIn("driver 13.0", done.out)
        self.assertIn("cupool simulated device, 4 GiB", done.out)
        self.assertEqual(13000, json.loads(self.cupool("doctor", "--json").out)["driver"]["version"])

    def test_doctor_tells_what_is_wrong_with_the_settings_and_the_driver(self):
        done = self.cupool("doctor", env={"CUPOOL_LIMT": "1G", "CUPOOL_SIM_DRIVER_VERSION": "12040"})
        self.assertEqual(1, done.code)
        self.assertIn("did you mean CUPOOL_LIMIT?", done.out)
        self.assertIn("older than CUDA 12.5", " ".join(done.out.split()))

    def test_doctor_tells_of_a_missing_driver(self):
        done = self.cupool("doctor", env={"LD_LIBRARY_PATH": ""})
        if "driver:" not in done.out:
            self.skipTest("this machine has a driver")
        self.assertEqual(1, done.code)
        self.assertIn("install the NVIDIA driver", done.out)

    def test_doctor_watches_a_program_and_keeps_its_output_and_exit_code(self):
        done = self.cupool("doctor", "--", lab.PROGRAM, "a:x:1000", "p:live_bytes")
        self.assertEqual(0, done.code)
        self.assertIn("live_bytes 1024", done.out)
        self.assertIn("script[", done.out)
        self.assertIn("linked symbols; mode lanes", done.out)
        self.assertEqual(7, self.cupool("doctor", "--", "sh", "-c", "exit 7").code)

    def test_doctor_names_what_mapped_memory_cannot_do_for_a_program_that_needs_it(self):
        # A driver that exports no memory: then there is nothing to share a block by.
        no_export = {"CUPOOL_SIM_FAULTS": "cuMemExportToShareableHandle@*=801"}
        for needs, driver in (("S:x", {}), ("i:x", no_export)):
            done = self.cupool("doctor", "--", lab.PROGRAM, "a:x:1000", needs, env={"CUPOOL_SEGMENTS": "mapped", **driver})
            self.assertIn("CUPOOL_SEGMENTS=driver can", " ".join(done.out.split()))
        for other in ("f:x", "i:x"):
            done = self.cupool("doctor", "--", lab.PROGRAM, "a:x:1000", other, env={"CUPOOL_SEGMENTS": "mapped"})
            self.assertNotIn("CUPOOL_SEGMENTS", done.out)

    def test_doctor_says_what_passed_the_pool_by_and_what_to_change(self):
        done = self.cupool("doctor", "--json", "--", lab.PROGRAM, "a:x:1000", env={"CUPOOL_STREAMS": "fences", "CUPOOL_ONLY": "other"})
        (process,) = json.loads(done.out)["processes"]
        self.assertEqual("off", process["mode"])
        self.assertIn("switched off", process["advice"][0])
        nothing = self.cupool("doctor", "--", "true")
        self.assertIn("No process reported", nothing.out)

    # ---- merge.

    def reports(self, count):
        """Files of that many processes, each with one allocation more than the one before."""
        for rank in range(count):
            env = {"CUPOOL_STATS": "json", "CUPOOL_STATS_FILE": str(self.scratch / "%r.json"), "SLURM_PROCID": str(rank)}
            harness.with_cupool([lab.PROGRAM, *lab.fill(rank + 1, 1000)], env=env, driver="sim")
        return sorted(self.scratch.iterdir(), reverse=True)

    def test_merge_adds_up_the_ranks(self):
        files = self.reports(3)
        done = self.cupool("merge", *files)
        lines = done.out.splitlines()
        self.assertEqual(0, done.code)
        self.assertEqual(["rank", "0", "1", "2", "all"], [line.split()[0] for line in lines[1:]])
        self.assertEqual("6", lines[-1].split()[3])
        merged = json.loads(self.cupool("merge", "--json", *files).out)
        self.assertEqual((3, 6), (merged["processes"], merged["allocations"]))

    def test_merge_says_no_more_than_the_reports_know(self):
        (good,) = self.reports(1)
        report = json.loads(good.read_text())
        bounds = {"peak_live_bytes": 3 << 20, "peak_live_most_bytes": 5 << 20}
        # Of four allocations the driver served one itself, and one failed that was not for lack of memory.
        counts = {"allocations": 4, "reused": 1, "first_uses": 2, "forwarded_allocations": 1, "failed_allocations": 2, "out_of_memory": 1}
        cells = []
        for change in (counts, {**counts, **bounds}, {**counts, "reused": 0, "first_uses": 0}):
            good.write_text(json.dumps({**report, **change}))
            lines = self.cupool("merge", good).out.splitlines()
            self.assertEqual(["calls", "memory"], lines[1].split()[-3:-1])
            cells.append(lines[2].split()[3:])
            self.assertEqual("+" in lines[2], "CUPOOL_STATS_EXACT=yes says it exactly" in " ".join(lines[4:]))
        self.assertEqual(["33.3%", "33.3%", "-"], [row[1] for row in cells])
        self.assertEqual(["1.0K", "3.0M+"], [row[2] for row in cells][:2])
        self.assertEqual(["1"] * 3, [row[-2] for row in cells])

    def test_merge_tells_of_files_that_are_no_reports(self):
        files = self.reports(1)
        junk = self.scratch / "junk"
        for text in ("", "{", "[1,2]", '{"a":1}', "\x00", '{"cupool":"1"' + "[" * 100):
            junk.write_text(text)
            done = self.cupool("merge", files[0], junk)
            self.assertEqual(1, done.code)
            self.assertIn("is not a report", done.err)
            self.assertIn("all", done.out)
        for path, reason in ((self.scratch / "missing", "No such file"), (self.scratch, "Is a directory")):
            done = self.cupool("merge", path)
            self.assertEqual(1, done.code)
            self.assertIn(f"cannot read {path}: {reason}", done.err)
        self.assertEqual(2, self.cupool("merge").code)
        self.assertEqual(2, self.cupool("merge", "--odd").code)
        self.assertIn("cannot read --odd", self.cupool("merge", "--", "--odd").err)
        self.assertEqual(2, self.cupool("merge", "[a,b]", "++").err.count("cannot read"))

    def test_merge_ends_in_a_sentence_whatever_it_is_given(self):
        (good,) = self.reports(1)
        report = good.read_text()
        bad = self.scratch / "bad\x1b[2J.json"
        head = report.rstrip("}\n")
        hostile = {
            "exponent": report.replace('"allocations":1,', '"allocations":1e3,'), "duplicate": head + '},"pid":7}',
            "zero": report.replace('"script"', '"scr\\u0000ipt"'), "raw zero": report.replace("script", "scr\x00ipt"),
            "negative": report.replace('"allocations":1,', '"allocations":-1,'), "huge": report.replace('"allocations":1,', f'"allocations":{10 ** 30},'),
            "text for a count": report.replace('"allocations":1,', '"allocations":"1",'), "many": "[" + "0," * (20 << 20) + "0]",
            "many inside": '{"cupool":"1","x":[' + "0," * (20 << 20) + "0]}", "deep": '{"cupool":"1","x":' + "[" * 2_000_000,
            "deep objects": '{"x":' * 500_000, "long": '{"cupool":"' + "x" * (30 << 20) + '"}', "cut": report[:-20], "number": "1", "words": "nan",
            "many names": "{" + ",".join(f'"k{i}":0' for i in range(100_000)) + "}"}
        for kind, text in hostile.items():
            bad.write_text(text)
            script = f'ulimit -v 400000; exec "$@"'
            done = harness.run(["sh", "-c", script, "sh", COMMAND, "merge", good, bad], driver="sim") if not harness.SANITIZE else \
                self.cupool("merge", good, bad)
            self.assertEqual(1, done.code, (kind, done.err))
            self.assertIn("bad?[2J.json is not a report", done.err, kind)
            self.assertEqual(1, done.err.count("\n"), kind)
            self.assertIn("1 process ", done.out)
        self.assertEqual(1, self.cupool("merge", "/dev/zero").code)

    def test_merge_reads_a_pipe_and_waits_for_none_that_nobody_writes_to(self):
        (good,) = self.reports(1)
        pipe = self.scratch / "pipe"
        os.mkfifo(pipe)
        done = self.cupool("merge", good, pipe)
        self.assertEqual((1, 1), (done.code, done.err.count("\n")), done.err)
        self.assertIn("is not a report of cupool", done.err)
        # The pause lets a reader that does not wait show.
        script = '(sleep 0.2; cat "$1") | "$2" merge --json /dev/stdin'
        done = harness.run(["sh", "-c", script, "sh", good, COMMAND], driver="sim")
        self.assertEqual((0, ""), (done.code, done.err))
        self.assertEqual(1, json.loads(done.out)["processes"])

    def test_a_pipe_among_the_reports_does_not_hold_the_doctor_up(self):
        done = self.cupool("doctor", "sh", "-c", 'mkfifo "${CUPOOL_COUNTS_FILE%/*}/pipe"')
        self.assertEqual(0, done.code, done.err)
        self.assertIn("verdict: ", done.out)

    def test_merge_counts_a_process_once(self):
        files = self.reports(2)
        again = self.scratch / "again.json"
        again.write_text(files[0].read_text())
        done = self.cupool("merge", "--json", *files, again, files[1])
        merged = json.loads(done.out)
        self.assertEqual((2, 3), (merged["processes"], merged["allocations"]))
        self.assertIn("are of the same process", done.err)

    def test_merge_prints_no_control_character_of_a_report(self):
        (good,) = self.reports(1)
        good.write_text(good.read_text().replace('"script"', '"a\\u001b[31m\\nforged"'))
        out = self.cupool("merge", good).out
        self.assertIn("a?[31m?forged", out)
        self.assertEqual(4, out.count("\n"))

    def test_merge_fits_eighty_columns_whatever_the_names_and_figures_are(self):
        (good,) = self.reports(1)
        report = json.loads(good.read_text())
        names = {"rank": "1048575", "host": "node-0123.rack-45.cluster.example.org", "program": "a_solver_with_a_long_name" * 4,
                 "pid": 4194303, "mode": "fences"}
        figures = {name: 2 ** 63 for name in report if isinstance(report[name], int) and name != "pid"}
        for change in (names, {**names, **figures}, {**names, "program": "größtes-programm-für-länder" * 3}):
            good.write_text(json.dumps({**report, **change}))
            lines = self.at_terminal(80, "merge", good).splitlines()
            self.assertEqual(4, len(lines), lines)
            for line in lines:
                self.assertLessEqual(len(line), 80, line)
            self.assertIn("fences", lines[2])
        self.assertIn("a_solver_with_a_long_name" * 4, self.cupool("merge", good).out.replace("größtes-programm-für-länder" * 3, "a_solver_with_a_long_name" * 4))

    def test_merge_tells_the_hosts_memory_from_the_devices(self):
        env = {"CUPOOL_STATS": "json", "CUPOOL_STATS_FILE": str(self.scratch / "%p.json"), "CUPOOL_LIMIT": "100M", "CUPOOL_SPILL": "200M"}
        harness.with_cupool([lab.PROGRAM, *lab.fill(13, 10 * lab.MIB)], env=env, driver="sim")
        (file,) = self.scratch.iterdir()
        titles, names, one, total = self.cupool("merge", file).out.splitlines()
        self.assertEqual(["peak"] * 3 + ["driver", "out", "of"], titles.split())
        self.assertEqual(["13", "0.0%", "100M", "100M", "30.0M"], one.split()[3:8])
        self.assertEqual(30 * lab.MIB, json.loads(self.cupool("merge", "--json", file).out)["peak_host_reserved_bytes"])
        self.assertNotIn("30.0M", self.cupool("merge", *self.reports(1)[1:]).out)

    def test_an_answer_that_could_not_be_written_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        for verb in ("options", "--version"):
            done = harness.run(["sh", "-c", f"{COMMAND} {verb} > /dev/full"], driver="sim")
            self.assertEqual((1, True), (done.code, "No space left" in done.err), done.err)

    # ---- options.

    def test_options_come_as_text_and_as_json(self):
        options = json.loads(self.cupool("options", "--json").out)
        for words, count in (([], sum(not o["expert"] for o in options)), (["--all"], len(options))):
            out = self.cupool("options", *words).out
            self.assertIn("CUPOOL_LIMIT=unlimited", out)
            self.assertEqual(count, len(re.findall(r"(?m)^CUPOOL_", out)))
        for name in ("limit", "CUPOOL_LIMIT", "Limit"):
            self.assertEqual(["CUPOOL_LIMIT"], re.findall(r"(?m)^CUPOOL_\w+", self.cupool("options", name).out))
        self.assertIn("CUPOOL_LIMIT", [o["name"] for o in json.loads(self.cupool("options", "--json").out)])
        self.assertEqual(2, self.cupool("options", "--odd").code)

    def test_an_option_is_explained_with_its_value_its_source_and_its_syntax(self):
        plain = " ".join(self.cupool("options", "limit").out.split())
        self.assertTrue(plain.startswith("CUPOOL_LIMIT=unlimited the default; the environment does not set it "
                                         "syntax: a size: 512, 64K, 1.5GiB, 20% (of the device's memory) or unlimited"), plain)
        given = " ".join(self.cupool("options", "chunk", "decay_ms", "log", "zero", env={"CUPOOL_CHUNK": "64MiB", "CUPOOL_DECAY_MS": "7"}).out.split())
        for said in ("CUPOOL_CHUNK=64M from the environment; the default is 32M", "; from 2M to 16G", "CUPOOL_DECAY_MS=7 from the environment",
                     "syntax: a whole number from 0 to 86400000", "CUPOOL_LOG=normal the default", "syntax: one of quiet|normal|verbose",
                     "CUPOOL_ZERO=no the default", "syntax: yes or no"):
            self.assertIn(said, given)
        refused = " ".join(self.cupool("options", "limit", env={"CUPOOL_LIMIT": "junk", "CUPOOL_CHUNK": "bad"}).out.split())
        self.assertIn("CUPOOL_LIMIT=unlimited the default; the environment's value is refused CUPOOL_LIMIT=junk is not a size; using "
                      "unlimited instead syntax:", refused)
        self.assertNotIn("CUPOOL_CHUNK", refused)
        told = {o["name"]: o for o in json.loads(self.cupool("options", "--json", env={"CUPOOL_LIMIT": "1G", "CUPOOL_CHUNK": "bad"}).out)}
        self.assertEqual(("1G", "environment"), (told["CUPOOL_LIMIT"]["value"], told["CUPOOL_LIMIT"]["source"]))
        self.assertEqual(("32M", "default"), (told["CUPOOL_CHUNK"]["value"], told["CUPOOL_CHUNK"]["source"]))
        self.assertEqual("default", told["CUPOOL_LOG"]["source"])

    def test_options_for_experts_come_last_under_their_own_heading(self):
        experts = {o["name"]: o["expert"] for o in json.loads(self.cupool("options", "--json").out)}
        self.assertFalse(experts["CUPOOL_LIMIT"])
        self.assertTrue(experts["CUPOOL_SEGMENT_MIN"])
        helped = harness.with_cupool(["true"], env={"CUPOOL_HELP": "1"}).err
        for text in (self.cupool("options", "--all").out, self.cupool("options", "--markdown").out, helped):
            ordinary, rest = text.split("For experts")
            self.assertEqual([], [n for n in re.findall(r"(?m)^(?:\| `)?(CUPOOL_\w+)", ordinary) if experts[n]])
            self.assertEqual([], [n for n in re.findall(r"(?m)^(?:\| `)?(CUPOOL_\w+)", rest) if not experts[n]])
            self.assertEqual(len(experts), len(re.findall(r"(?m)^(?:\| `)?CUPOOL_\w+", text)))


if __name__ == "__main__":
    harness.main()
