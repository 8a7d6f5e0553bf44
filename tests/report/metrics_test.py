"""Figures for Prometheus: CUPOOL_METRICS_FILE and cupool top --openmetrics, of programs on the simulated driver."""

import os
import re

import harness
import lab

SAMPLE = re.compile(r'^(?P<name>[a-z_]+)\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (?P<value>[0-9.]+)$')
HEAD = re.compile(r"^# (?P<kind>TYPE|UNIT|HELP) (?P<name>[a-z_]+) (?P<text>.+)$")


def parse(text):
    """{(metric, labels): value}; raises if the text breaks a rule of OpenMetrics."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], lines[-2:]
    found, family, seen, kind = {}, None, set(), None
    for line in lines[:-2]:
        if head := HEAD.match(line):
            if head["kind"] == "TYPE":
                family, kind = head["name"], head["text"]
                assert family not in seen, f"{family} comes twice"
                seen.add(family)
            assert head["name"] == family, line
            assert head["kind"] != "UNIT" or family.endswith("_" + head["text"]), line
            continue
        sample = SAMPLE.match(line)
        assert sample, line
        assert sample["name"] == family + ("_total" if kind == "counter" else ""), line
        labels = tuple(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', sample["labels"]))
        assert (sample["name"], labels) not in found, line
        found[sample["name"], labels] = float(sample["value"])
    return found


class MetricsTest(harness.TestCase):
    def play(self, *steps, program=lab.PROGRAM, **env):
        """Runs the steps with a metrics file; the settings are environment variables."""
        return harness.with_cupool([program, *steps], env={"CUPOOL_METRICS_FILE": str(self.scratch / "m.prom"), **env}, driver="sim")

    def values(self, name="m.prom"):
        return {metric: value for (metric, _), value in parse((self.scratch / name).read_text()).items()}

    def test_metrics_hold_the_figures_when_the_program_ends(self):
        done = self.play("a:x:1000000", "a:y:3000000", *["m:y:1"] * 40, "f:y", "s", "a:y:3000000")
        self.assertEqual((0, ""), (done.code, done.err))
        values = self.values()
        self.assertEqual(values["cupool_reserved_bytes"], values["cupool_live_bytes"] + values["cupool_cached_bytes"])
        self.assertGreaterEqual(values["cupool_live_bytes"], 4000000)
        self.assertGreaterEqual(values["cupool_peak_reserved_bytes"], values["cupool_reserved_bytes"])
        self.assertEqual((1, 2), (values["cupool_reused_total"], values["cupool_first_uses_total"]))
        self.assertAlmostEqual(values["cupool_reused_total"] / 3, values["cupool_reused_ratio"], places=5)
        self.assertEqual(1, values["cupool_waits_avoided_total"])
        self.assertEqual(0, values["cupool_host_bytes"])
        self.assertNotIn("cupool_limit_bytes", values)
        labels = [dict(labels) for _, labels in parse((self.scratch / "m.prom").read_text())][0]
        self.assertEqual({"pid", "program", "device", "uuid"}, set(labels))
        self.assertEqual(("script", "0"), (labels["program"], labels["device"]))

    def test_metrics_tell_the_hosts_memory_from_the_devices_and_name_the_limit(self):
        self.play(*lab.fill(13, 10 * lab.MIB), CUPOOL_LIMIT="100M", CUPOOL_SPILL="200M")
        values = self.values()
        self.assertEqual((100 * lab.MIB, 100 * lab.MIB, 30 * lab.MIB),
                         tuple(values[f"cupool_{name}_bytes"] for name in ("live", "limit", "host")))
        self.assertEqual(100 * lab.MIB, values["cupool_peak_reserved_bytes"])

    def test_the_metrics_file_can_be_read_by_a_collector_of_another_user(self):
        self.play("a:x:1000")
        umask = os.umask(0o022)
        os.umask(umask)
        self.assertEqual(0o644 & ~umask, (self.scratch / "m.prom").stat().st_mode & 0o777)
        self.assertEqual(["m.prom"], [path.name for path in self.scratch.iterdir()])

    def test_the_metrics_file_is_named_by_a_pattern(self):
        self.play("a:x:1000", CUPOOL_METRICS_FILE=str(self.scratch / "%e-%p-%r.prom"))
        self.assertRegex(next(self.scratch.iterdir()).name, r"^script-[0-9]+-none\.prom$")

    def test_metrics_are_written_beside_every_form_of_report_and_after_a_signal(self):
        for form in ("off", "summary", "text", "json"):
            for steps in (["a:x:1000"], ["a:x:1000", "x:term"]):
                self.play(*steps, CUPOOL_STATS=form)
                self.assertIn("cupool_live_bytes", self.values())
                (self.scratch / "m.prom").unlink()

    def test_a_name_with_quotes_stays_in_its_label(self):
        program = self.scratch / 'odd"}\\ name'
        program.symlink_to(lab.PROGRAM)
        self.play("a:x:1000", program=program)
        _, labels = next(iter(parse((self.scratch / "m.prom").read_text())))
        self.assertEqual('odd\\"}\\\\ name', dict(labels)["program"])

    def test_metrics_replace_no_link_and_say_so_once(self):
        victim = self.scratch / "victim"
        victim.write_text("precious")
        (self.scratch / "m.prom").symlink_to(victim)
        done = self.play("a:x:1000")
        self.assertEqual("precious", victim.read_text())
        self.assertEqual(1, done.err.count("\n"), done.err)
        self.assertIn("symbolic link", done.err)

    def test_a_program_without_device_memory_leaves_metrics_without_samples(self):
        self.play("s")
        self.assertEqual({}, self.values())

    def test_the_text_is_checked_by_a_reader_that_sees_faults(self):
        self.play("a:x:1000")
        text = (self.scratch / "m.prom").read_text()
        first = text.splitlines()[3]
        for wrong in (text[:-6], text.replace(first, first + "\n" + first), text.replace("cupool_reused_total", "cupool_reused"),
                      text.replace('pid="', "pid="), text.replace("UNIT cupool_live_bytes bytes", "UNIT cupool_live_bytes seconds")):
            self.assertRaises(AssertionError, parse, wrong)


if __name__ == "__main__":
    harness.main()
