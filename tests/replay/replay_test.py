"""cupool replay, tune and fit: what they need no driver for."""

import json
import pickle
import re
import struct

import forms
import harness

COMMAND = harness.BUILD / "cupool"
DATA = harness.SOURCE / "tests" / "data"
MIB = 1 << 20
# What tests/unit/test_footprint.cpp prints: MiB reserved and driver calls of the pool, and PyTorch's by its rules.
SHARED = {"gpt": (818, 29, 952, 67), "conv": (566, 43, 1064, 37), "llama": (1434, 50, 1572, 137), "gnn": (576, 28, 842, 21)}
STREAMS = {"turns": (1472, 45), "prefetch64": (750, 14), "prefetch256": (2326, 12)}


class ReplayTest(harness.TestCase):
    def say(self, *words, code=0, env=None):
        """Runs the command."""
        done = harness.run([COMMAND, *words], env=env or {})
        self.assertEqual(code, done.code, done.err)
        return done

    def rows(self, path, *flags):
        """The rows of one trace by their names."""
        (only,) = json.loads(self.say("replay", "--json", *flags, path).out)
        return {row["with"]: row for row in only["rows"]}

    def write(self, name, content):
        path = self.scratch / name
        path.write_bytes(content)
        return path

    def test_a_replay_needs_what_the_pool_needs_and_pytorch_s_rules_what_pytorch_took(self):
        for name, (reserved, calls, by_rules, by_rules_calls) in SHARED.items():
            rows = self.rows(DATA / f"{name}.trace.gz", "--one-thread")
            self.assertEqual((reserved, calls), (rows["cupool"]["peak_reserved_bytes"] // MIB, rows["cupool"]["driver_calls"]), name)
            by = rows["PyTorch's rules"]
            self.assertEqual((by_rules, by_rules_calls), (by["peak_reserved_bytes"] // MIB, by["driver_calls"]), name)
        for name, (reserved, calls) in STREAMS.items():
            cupool = self.rows(DATA / f"{name}.trace.gz", "--lag", "0")["cupool"]
            self.assertEqual((reserved, calls), (cupool["peak_reserved_bytes"] // MIB, cupool["driver_calls"]), name)

    def test_several_traces_and_settings_make_one_table(self):
        done = self.say("replay", "--set", "segments=mapped,chunk=8M", "--set", "split=no", DATA / "conv.trace.gz", DATA / "gnn.trace.gz").out
        done, *notes = re.split(r"(?m)^(?=\S+ with )", done)
        self.assertEqual(2, len(notes))
        for note in notes:
            self.assertRegex(note, r"^(conv|gnn).trace.gz with cupool split=no: the driver gives \d+ MiB for that")
        for row in ("conv.trace.gz", "gnn.trace.gz"):
            self.assertEqual(1, done.count(row))
        for row in ("cupool segments=mapped,chunk=8M", "cupool split=no", "PyTorch's rules", "PyTorch, expandable", "exact-size bins", "the driver alone"):
            self.assertEqual(2, done.count(row), done)

    def test_all_forms_of_a_program_need_the_same(self):
        lines = forms.lives(400)
        files = {"text": forms.text([line for line in lines if line[0] != "s"]), "rmm": forms.rmm(lines)}
        files.update({f"snapshot{p}": pickle.dumps(forms.snapshot(lines), p) for p in (2, 3, 4, 5)})
        found = {}
        for name, content in files.items():
            rows = self.rows(self.write(name, content))
            self.assertEqual(400, rows["cupool"]["allocations"], name)
            found[name] = [rows[with_]["peak_reserved_bytes"] for with_ in ("cupool", "PyTorch's rules", "PyTorch, expandable", "exact-size bins")]
        self.assertEqual(1, len({str(f) for f in found.values()}), found)

    def test_blocks_that_came_before_the_record_are_held_from_its_beginning(self):
        lines = forms.lives(50)
        later = forms.snapshot(lines, before=[100 * MIB, 200 * MIB])
        alone = self.rows(self.write("alone", pickle.dumps(forms.snapshot(lines), 4)))["exact-size bins"]
        both = self.rows(self.write("both", pickle.dumps(later, 4)))["exact-size bins"]
        self.assertEqual(alone["peak_reserved_bytes"] + 300 * MIB, both["peak_reserved_bytes"])
        self.assertEqual(52, both["allocations"])

    def test_a_pickle_that_wants_code_to_run_is_refused(self):
        class Evil:
            def __reduce__(self):
                return (print, ("ran",))

        done = self.say("replay", self.write("evil", pickle.dumps({"device_traces": [Evil()]}, 4)), code=1)
        self.assertIn("it wants to make an object, which is not done here", done.err)
        self.assertNotIn("ran", done.out)

    def test_files_that_are_none_end_in_a_sentence(self):
        good = forms.rmm(forms.lives(5)).decode()
        for name, content, why in (("empty", b"", "it is neither"), ("noise", bytes(range(256)) * 9, "it is neither"),
                                   ("twice", b"a 1 100 0\na 1 100 0\n", "line 2 allocates 100 bytes as 1, which is held already"),
                                   ("free", b"a 1 100 0\nf 2 0\n", "line 2 frees 2, which is not held"),
                                   ("huge", b"a 1 99999999999999999 0\n", "no size of a block"),
                                   ("words", b"a 1 100 0\nb 2\n", "line 2 is none of"), ("work", b"k 0 0\n", "it has no allocations"),
                                   ("cut", pickle.dumps(forms.snapshot(forms.lives(5)), 4)[:-40], "it ends too early"),
                                   ("other", pickle.dumps({"a": 1}, 4), "it has no device_traces"),
                                   ("memo", b"\x80\x04h\x07.", "it refers to what is not there"),
                                   ("old", pickle.dumps({"a": 1}, 4).replace(b"\x80\x04", b"\x80\x01", 1), "it is neither"),
                                   ("rmm", good.replace("allocate", "alocate", 1).encode(), "line 2 is neither an allocation nor a free"),
                                   ("rmm2", good.replace(",", ";").replace(";", ",", 5).encode(), "line 2 is not Thread,Time"),
                                   ("gzip", b"\x1f\x8bnonsense", "gzip cannot read it"),
                                   ("trace", b"CUCT" + struct.pack("<I", 7) * 20, "cannot replay")):
            done = self.say("replay", self.write(name, content), code=1)
            self.assertEqual(1, done.err.count("cannot replay"), done.err)
            self.assertIn(why, done.err, name)
        self.assertIn("No such file", self.say("replay", self.scratch / "none", code=1).err)
        self.assertIn("it is not a file", self.say("fit", "--memory", "1G", self.scratch, code=1).err)

    def test_words_that_make_no_sense_are_refused(self):
        path = self.write("t", forms.text(forms.lives(5)))
        for words, why in ((["replay"], "replay needs a trace"), (["tune"], "tune needs a trace"), (["fit", path], "--memory with a size"),
                           (["fit", "--memory", "much", path], "--memory takes a size"), (["replay", "--lag", "-1", path], "--lag takes a number"),
                           (["tune", "--goal", "fun", path], "--goal takes memory or speed"), (["replay", "--set", "chnk=3M", path], "CUPOOL_CHNK"),
                           (["replay", "--set", "backend=native", path], "cannot be replayed"), (["replay", "--play", path, path], "--play takes one trace")):
            self.assertIn(why, self.say(*words, code=2).err)

    def test_an_allocation_that_finds_no_memory_is_counted(self):
        rows = self.rows(DATA / "gnn.trace.gz", "--memory", "400M")
        self.assertGreater(rows["cupool"]["failed_allocations"], 0)
        for name, row in rows.items():
            with self.subTest(name):
                self.assertLessEqual(row["peak_reserved_bytes"], 400 * MIB)
                self.assertGreater(row["failed_allocations"], 0)
        # What is free goes back first: all of them fit a device that is hardly larger than what is live.
        roomy = self.rows(DATA / "gnn.trace.gz", "--memory", "640M")
        self.assertEqual([0] * len(roomy), [row["failed_allocations"] for row in roomy.values()])

    def test_tune_names_settings_that_need_what_it_says(self):
        for name in ("gnn", "conv"):
            path = DATA / f"{name}.trace.gz"
            found = json.loads(self.say("tune", "--json", path).out)
            self.assertEqual(self.rows(path)["cupool"]["peak_reserved_bytes"], found["before"]["peak_reserved_bytes"])
            self.assertLess(found["after"]["peak_reserved_bytes"], found["before"]["peak_reserved_bytes"])
            entries = [one["set"] for one in found["set"]]
            played = self.rows(path, "--set", ",".join(entries))
            (tuned,) = (row for row in played.values() if row.get("set") == entries)
            self.assertEqual(found["after"]["peak_reserved_bytes"], tuned["peak_reserved_bytes"])
            self.assertEqual(found["after"]["driver_calls"], tuned["driver_calls"])
            for one in found["set"]:
                self.assertNotEqual(found["after"], one["without"], one["set"])
            said = self.say("tune", path).out
            # What each entry says is the need of all the others, which a user can play.
            for one in found["set"]:
                need, calls = one["without"]["peak_reserved_bytes"], one["without"]["driver_calls"] + one["without"]["waits"]
                words = f"{need // MIB} MiB" if need > found["after"]["peak_reserved_bytes"] else f"{calls} calls and waits"
                self.assertRegex(said, f"(?m)^{one['set']} +# {words} without it")

    def test_tune_for_speed_takes_hardly_more_memory_for_fewer_calls(self):
        found = json.loads(self.say("tune", "--goal", "speed", "--json", DATA / "conv.trace.gz").out)
        calls = [found[when]["driver_calls"] + found[when]["waits"] for when in ("before", "after")]
        self.assertLess(calls[1], calls[0])
        self.assertLessEqual(found["after"]["peak_reserved_bytes"], 1.05 * found["before"]["peak_reserved_bytes"])

    def test_fit_says_by_how_much_a_program_fits_and_who_holds_the_memory(self):
        path = DATA / "gpt.trace.gz"
        self.assertRegex(self.say("fit", "--memory", "2G", path).out, r"gpt.trace.gz fits 2 GiB: the pool takes .* stay free")
        (tight,) = json.loads(self.say("fit", "--memory", "816M", "--json", path).out)
        self.assertTrue(tight["fits"])
        (small,) = json.loads(self.say("fit", "--memory", "700M", "--json", path, code=1).out)
        self.assertFalse(small["fits"])
        self.assertGreaterEqual(small["missing_bytes"], small["peak_asked_bytes"] - 700 * MIB)
        said = self.say("fit", "--memory", "700M", path, code=1).out
        self.assertIn("gpt.trace.gz does not fit 700 MiB", said)
        self.assertIn("CUPOOL_SPILL=", said)
        self.assertIn("blocks of", said)
        stacks = self.write("s", pickle.dumps(forms.snapshot(forms.lives(60)), 4))
        self.assertIn("forward (model.py:12) < train (train.py:3)", self.say("fit", "--memory", "40M", stacks, code=1).out)


if __name__ == "__main__":
    harness.main()
