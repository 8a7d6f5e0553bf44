"""The documents say what the program does: made from its tables, or checked against them."""

import json
import re
import subprocess

import harness
from lab import fill, play
from schema import faults

COMMAND = harness.BUILD / "cupool"
DOCS = harness.SOURCE / "docs"


class DocumentsTest(harness.TestCase):
    def counters(self):
        """Names and sentences in counters.def, in order."""
        rows = re.findall(r'^CUPOOL_(?:COUNTER|EVENT|DEVICE|FIGURE)\((\w+),\s*((?:"[^"]*"\s*)+)\)',
                          (harness.SOURCE / "src/stats/counters.def").read_text(), re.MULTILINE)
        return {name: "".join(re.findall(r'"([^"]*)"', text)) for name, text in rows if name != "name"}

    def test_the_page_of_options_is_the_table_of_options(self):
        made = harness.run([COMMAND, "options", "--markdown"], driver="sim").out
        self.assertEqual(made, (DOCS / "options.md").read_text(), "run cupool options --markdown > docs/options.md")

    def test_the_page_of_the_trace_format_has_the_table_of_events(self):
        made = harness.run([COMMAND, "trace", "--markdown"], driver="sim").out
        self.assertEqual(made, (DOCS / "trace-format.md").read_text().split("## Events\n\n")[1], "run scripts/make-docs")

    def test_the_page_of_statistics_lists_every_part_of_what_the_driver_charges(self):
        page = (DOCS / "stats.md").read_text()
        rows = re.findall(r'^CUPOOL_(?:CHARGE|SEEN)\((\w+), "([^"]*)"\)', (harness.SOURCE / "src/report/charges.def").read_text(),
                          re.MULTILINE)
        self.assertGreater(len(rows), 15)
        for name, doc in rows:
            self.assertIn(f"| `{name}` | {doc} |\n", page, "run scripts/make-docs")

    def test_the_page_of_counters_lists_every_counter_with_its_sentence(self):
        page = (DOCS / "counters.md").read_text()
        listed = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
        self.assertEqual(self.counters(), listed)

    def test_a_report_is_as_the_schema_says(self):
        schema = json.loads((DOCS / "stats.schema.json").read_text())
        for options in ({}, {"backend": "native"}, {"backend": "off"}, {"streams": "fences", "split": "no"}):
            report = play(*fill(5, 5000), "s", driver_env={"CUPOOL_TEST_DRIVER": "sim"}, **options)
            self.assertNotEqual({}, report.counters, report.err)
            self.assertEqual([], faults(report.counters, schema))

    def test_the_schema_names_every_counter_and_sees_what_is_wrong(self):
        schema = json.loads((DOCS / "stats.schema.json").read_text())
        names = set(self.counters())
        self.assertEqual(set(), names - set(schema["properties"]))
        report = play(*fill(2, 5000)).counters
        for spoil in (lambda r: r.pop("devices"), lambda r: r.update(surplus=1), lambda r: r.update(allocations=-1),
                      lambda r: r["devices"][0].pop("live_bytes"), lambda r: r.update(mode="strange")):
            spoiled = json.loads(json.dumps(report))
            spoil(spoiled)
            self.assertNotEqual([], faults(spoiled, schema))

    def test_the_man_page_names_every_verb_and_is_well_formed(self):
        page = (DOCS / "cupool.1").read_text()
        usage = harness.run([COMMAND, "--help"], driver="sim").out
        for verb in re.findall(r"(?m)^  cupool ([a-z]+)", usage):
            self.assertIn(f".B cupool {verb}", page)
        try:
            done = subprocess.run(["man", "--warnings", "-l", DOCS / "cupool.1"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            self.skipTest("man is not installed")
        self.assertNotIn("warning", done.stderr)


if __name__ == "__main__":
    harness.main()
