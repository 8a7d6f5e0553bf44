"""`cupool report` in the forms of other viewers, read back as those read them, and as text."""

import csv
import json
import pickle
import pickletools
import re

import forms
import harness
import lab
from schema import faults

COMMAND = harness.BUILD / "cupool"
MAKE = harness.BUILD / "tests" / "see" / "make_trace"
CENSUS = harness.BUILD / "tests" / "report" / "census"
OBSERVED = harness.BUILD / "tests" / "aids" / "observed"


class FormsTest(harness.TestCase):
    def made(self, events=20000, *how):
        path = self.scratch / "made"
        harness.run([MAKE, path, events, *how], driver="unit")
        return path

    def played(self, *steps, program=lab.PROGRAM, **env):
        path = self.scratch / "played"
        done = harness.with_cupool([program, *steps], env={"CUPOOL_TRACE": str(path), **env}, driver="sim")
        self.assertEqual(0, done.code, done.err)
        return path

    def report(self, trace, *flags, code=0):
        done = harness.run([COMMAND, "report", *flags, trace], driver="sim")
        self.assertEqual(code, done.code, done.err)
        return done

    def file(self, trace, *flags):
        self.report(trace, *flags, "-o", self.scratch / "out")
        return self.scratch / "out"

    def most(self, trace, kind="pool"):
        """What the summary of the trace says was held at most."""
        said = harness.run([COMMAND, "trace", "--dump", trace], driver="sim").out
        live, now, most = {}, 0, 0
        for line in said.splitlines():
            known = dict(re.findall(r"(\w+)=(\S+)", line))
            if " allocated " in line and known["kind"] == kind:
                live[known["address"]] = int(known["asked"])
                now += live[known["address"]]
                most = max(most, now)
            elif " freed " in line:
                now -= live.pop(known["address"], 0)
        return most

    # ---- PyTorch.

    def snapshot(self, trace, *flags):
        path = self.file(trace, "--pytorch", *flags)
        data = path.read_bytes()
        # Nothing but what the viewer's own reader of pickles knows, and no list that it cannot take at once.
        known = {"PROTO", "APPENDS", "BINGET", "LONG_BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "LONG1", "MARK",
                 "SETITEMS", "STOP", "TUPLE2", "NEWFALSE", "NEWTRUE", "BINUNICODE", "LONG_BINPUT", "NONE"}
        items, depth = [], []
        for opcode, argument, _ in pickletools.genops(data):
            self.assertIn(opcode.name, known)
            if opcode.name == "PROTO":
                self.assertIn(argument, (2, 3, 4))
            if opcode.name == "MARK":
                depth.append(0)
            elif opcode.name in ("APPENDS", "SETITEMS"):
                items.append(depth.pop())
                if depth and opcode.name == "SETITEMS":
                    depth[-1] += 1
        self.assertLessEqual(max(items), 1000)
        return pickle.loads(data)

    def test_a_snapshot_for_pytorch_is_one_that_its_viewer_can_walk_through(self):
        trace = self.made()
        snapshot = self.snapshot(trace)
        most, reserved = forms.walk_snapshot(snapshot, 0)
        self.assertEqual(self.most(trace), most)
        self.assertGreaterEqual(reserved, most)
        events = snapshot["device_traces"][0]
        self.assertLessEqual({"alloc", "free_requested", "free_completed", "segment_alloc", "oom", "snapshot"}, {one["action"] for one in events})
        self.assertLessEqual({"pool", "unknown"}, {one["category"] for one in events})
        self.assertLessEqual({"forward", "backward"}, {one.get("user_metadata") for one in events})
        for event in events:
            for frame in event.get("frames", []):
                self.assertEqual({"name": str, "filename": str, "line": int}, {key: type(value) for key, value in frame.items()})

    def test_the_last_events_of_a_snapshot_are_as_many_as_were_asked_for(self):
        trace = self.made()
        few = self.snapshot(trace, "--last", "50")
        self.assertEqual(51, len(few["device_traces"][0]))
        forms.walk_snapshot(few, 0)
        self.assertEqual(few["device_traces"][0], self.snapshot(trace)["device_traces"][0][-51:])

    def test_a_snapshot_holds_memory_of_every_kind_of_real_programs(self):
        for program, steps, env in ((CENSUS, (), {}), (OBSERVED, (), {}), (lab.PROGRAM, ("C", "a:x:1000", "g:m:1000", "o:o:5000", "D"), {}),
                                    (lab.PROGRAM, [*lab.fill(40, 3 << 20), *lab.drain(20), "s", "T:0", *lab.fill(30, 5 << 20, "c")], {"CUPOOL_SEGMENTS": "mapped"})):
            snapshot = self.snapshot(self.played(*steps, program=program, **env))
            for device in range(len(snapshot["device_traces"])):
                forms.walk_snapshot(snapshot, device)

    # ---- Perfetto and pprof.

    def test_a_trace_for_perfetto_has_counters_slices_and_a_heap_profile(self):
        trace = self.made()
        tracks, counters, slices, heap = forms.read_perfetto(self.file(trace, "--perfetto"))
        self.assertIn("device 0: pool", counters)
        self.assertIn("device 0: taken by the pool", counters)
        held = max(value for _, value in counters["device 0: pool"])
        self.assertEqual(held, sum(weight for _, weight in heap))
        self.assertLessEqual({"forward", "backward", "cuStreamSynchronize (synchronisation)"}, {name for _, name, _, _ in slices})
        self.assertTrue(all(begin <= end for _, _, begin, end in slices))
        self.assertEqual({"step"}, {name for track, name, begin, end in slices if any(
            other != name and of == track and begin < a and b < end for of, other, a, b in slices[:40])})

    def test_a_profile_for_pprof_adds_up_to_the_peak(self):
        trace = self.made()
        samples = forms.read_pprof(self.file(trace, "--pprof"))
        _, counters, _, _ = forms.read_perfetto(self.file(trace, "--perfetto"))
        self.assertEqual(max(value for _, value in counters["device 0: pool"]), sum(values["inuse_space"] for _, values in samples))
        said = harness.run([COMMAND, "trace", trace], driver="sim").out
        allocated = int(re.search(r"(\d+) allocated", said)[1])
        self.assertEqual(allocated - 1, sum(values["alloc_objects"] for _, values in samples))

    # ---- Text.

    def test_a_profile_for_speedscope_is_as_its_schema_says(self):
        path = self.file(self.made(), "--speedscope")
        profile = json.loads(path.read_text())
        frames = len(profile["shared"]["frames"])
        self.assertEqual("https://www.speedscope.app/file-format-schema.json", profile["$schema"])
        for one in profile["profiles"]:
            self.assertEqual(("sampled", "bytes", 0), (one["type"], one["unit"], one["startValue"]))
            self.assertEqual(len(one["samples"]), len(one["weights"]))
            self.assertEqual(one["endValue"], sum(one["weights"]))
            self.assertTrue(all(0 <= frame < frames for sample in one["samples"] for frame in sample))
        # (The schema itself is not ours; what it asks for of such a profile is this.)
        schema = {"type": "object", "required": ["$schema", "shared", "profiles"], "additionalProperties": False,
                  "properties": {"$schema": {"type": "string"}, "name": {"type": "string"}, "exporter": {"type": "string"},
                                 "shared": {"type": "object"}, "profiles": {"type": "array"}}}
        self.assertEqual([], faults(profile, schema))

    def test_folded_stacks_add_up_to_the_peak(self):
        trace = self.made()
        rows = [line.rsplit(" ", 1) for line in self.report(trace, "--folded").out.splitlines()]
        samples = forms.read_pprof(self.file(trace, "--pprof"))
        self.assertEqual(sum(values["inuse_space"] for _, values in samples), sum(int(value) for _, value in rows))

    def test_the_csv_has_every_event_in_the_columns_of_rmm(self):
        trace = self.played("a:x:1000", "o:y:5000", "f:x", f"a:z:{1 << 45}", "a:x:3000")
        rows = list(csv.DictReader(self.report(trace, "--csv").out.splitlines()))
        self.assertEqual(["Thread", "Time", "Action", "Pointer", "Size", "Stream"], list(rows[0]))
        self.assertEqual([("allocate", "1000"), ("allocate", "5000"), ("free", "1000"), ("allocate failure", str(1 << 45)), ("allocate", "3000")],
                         [(row["Action"], row["Size"]) for row in rows])
        self.assertEqual(rows[0]["Pointer"], rows[2]["Pointer"])
        for row in rows:
            self.assertRegex(row["Time"], r"^\d\d:\d\d:\d\d\.\d{6}$")
            self.assertGreaterEqual(int(row["Pointer"], 16), 0)

    def test_the_text_says_what_the_trace_holds(self):
        said = self.report(self.made(), "--text").out
        self.assertIn("1 allocation failed; the first asked for 100 GiB of device 0", said)
        self.assertRegex(said, r"The phase `step` ran \d+ times")
        self.assertRegex(said, r"##+\.* 97\.1 MiB in 24 blocks")
        self.assertRegex(said, r"cuStreamSynchronize \(synchronisation\)")
        # The program's own line stands for a stack, not the package that it called.
        self.assertRegex(said, r"calls +train_step \(train\.py:61\)")
        self.assertNotIn("engine.py", said)
        # And what one line holds by several stacks is one row.
        rows = [line.split("  ")[-1] for line in said[said.index("Who allocated"):said.index("Host waits")].splitlines()[1:]]
        self.assertEqual(len(rows), len(set(rows)), said)

    def test_every_verb_counts_moments_from_the_beginning_of_the_trace(self):
        # Its first event comes three seconds later.
        trace = self.made()
        def said(verb, *flags):
            return harness.run([COMMAND, verb, *flags, trace], driver="sim").out

        dump = said("trace", "--dump").splitlines()
        begin, end = float(dump[0].split()[0]), float(dump[-1].split()[0])
        self.assertGreater(begin, 3)
        peak = float(re.search(r"at the peak, after ([\d.]+) s", said("trace"))[1])
        self.assertTrue(begin < peak < end)
        length = float(re.search(r"events in ([\d.]+) s", said("trace"))[1])
        self.assertAlmostEqual(end, length, delta=0.001)
        waits = said("waits")
        self.assertAlmostEqual(end, float(re.search(r"in ([\d.]+) s of the trace", waits)[1]), delta=0.001)
        # (The first is the longest: a library that is loaded.)
        self.assertIn("the longest began at 3.000000 s", waits)
        report = said("report", "--text")
        self.assertAlmostEqual(peak, float(re.search(r"held at most .* blocks, ([\d.]+) s after the trace began", report)[1]), delta=0.001)
        self.assertAlmostEqual(end, float(re.search(r"events in ([\d.]+) s", report)[1]), delta=0.01)
        self.assertRegex(report, r"holds, from 3.000000 s to [\d.]+ s of the trace")
        # A moment can be asked for as it was written.
        most = re.search(r"([\d.]+ MiB) of device memory in all", said("trace", "--at", "peak"))[1]
        for text in (f"{peak:.6f}", f"{peak:.6f} s", f"{peak * 1e3:.3f}ms", f"{peak * 1e6:.0f} us"):
            self.assertIn(f"s after the beginning: {most}", said("trace", "--at", text), text)
        self.assertIn(": 0 B of", said("trace", "--at", "2.9"))

    def test_names_of_a_hostile_trace_stay_names_in_every_form(self):
        trace = self.made(3000, "hostile")
        for form in ("--text", "--folded", "--csv"):
            said = self.report(trace, form).out
            self.assertNotIn("\x1b", said)
        self.snapshot(trace)
        forms.read_perfetto(self.file(trace, "--perfetto"))
        forms.read_pprof(self.file(trace, "--pprof"))
        json.loads(self.file(trace, "--speedscope").read_text())
        page = self.file(trace).read_text()
        self.assertEqual((2, 2), (page.count("<script"), page.count("</script>")))
        self.assertNotIn("onerror", page)

    def test_a_trace_of_any_events_with_any_values_makes_every_form(self):
        for seed in range(1, 9):
            trace = self.made(4000, "wild", seed)
            for form in ("--text", "--folded", "--csv"):
                self.report(trace, form)
            snapshot = self.snapshot(trace)
            for device in range(len(snapshot["device_traces"])):
                forms.walk_snapshot(snapshot, device)
            forms.read_perfetto(self.file(trace, "--perfetto"))
            forms.read_pprof(self.file(trace, "--pprof"))
            json.loads(self.file(trace, "--speedscope").read_text())
            self.assertGreater(self.file(trace).stat().st_size, 100000)

    def test_a_report_of_what_is_no_trace_is_a_sentence(self):
        (self.scratch / "t").write_bytes(b"x" * 1000)
        self.assertIn("it is no trace of cupool", self.report(self.scratch / "t", code=1).err)
        self.assertIn("cannot open", self.report(self.scratch / "missing", code=1).err)
        self.assertIn("needs a file", harness.run([COMMAND, "report"], driver="sim").err)
        trace = self.made(100)
        self.assertIn("are two forms", self.report(trace, "--csv", "--text", code=2).err)
        self.assertIn("is the trace itself", self.report(trace, "-o", trace, code=2).err)
        self.assertIn("takes a number from 1", self.report(trace, "--last", "x", code=2).err)
        self.assertIn("cannot write", self.report(trace, "-o", self.scratch / "none" / "x", code=1).err)

    def test_a_damaged_trace_is_shown_up_to_there(self):
        trace = self.made(40000)
        data = bytearray(trace.read_bytes())
        data[-2000] ^= 0xFF
        trace.write_bytes(data)
        done = self.report(trace, "--text", code=1)
        self.assertIn("cannot read all of", done.err)
        self.assertIn("The program held at most", done.out)

    def test_an_empty_trace_makes_a_report_of_nothing(self):
        trace = self.played("n:1")
        for form in ("--text", "--pytorch", "--perfetto", "--pprof", "--speedscope", "--folded", "--csv"):
            self.report(trace, form, "-o", self.scratch / "out")
        self.assertIn("@", self.file(trace).read_text())

    # ---- cupool run --report.

    def test_run_with_a_report_leaves_a_page_and_the_exit_code_of_the_program(self):
        done = harness.run([COMMAND, "run", "--report", "--stats", "off", "--", lab.PROGRAM, "a:x:1000", "p:frees"], driver="sim", cwd=self.scratch)
        pages = list(self.scratch.glob("cupool-script-*.html"))
        self.assertEqual((0, 1), (done.code, len(pages)), done.err)
        self.assertIn(f"the report is in {pages[0].name}", done.err)
        self.assertEqual("frees 0\n", done.out)
        died = harness.run([COMMAND, "run", "--report", "--stats", "off", "--", lab.PROGRAM, "a:x:1000", "x:abort"], driver="sim", cwd=self.scratch)
        self.assertEqual(128 + 6, died.code)
        self.assertEqual(2, len(list(self.scratch.glob("cupool-script-*.html"))))
        none = harness.run([COMMAND, "run", "--report", "--", "true"], driver="sim", cwd=self.scratch)
        self.assertIn("there is no report", none.err)


if __name__ == "__main__":
    harness.main()
