"""The page of `cupool report`, drawn in headless Chromium: what a click, a drag, a key or a search changes."""

import base64
import contextlib
import gzip
import re
import shutil
import subprocess

import browser
import harness
import lab

COMMAND = harness.BUILD / "cupool"
MAKE = harness.BUILD / "tests" / "see" / "make_trace"


def steps_of(name, most=6000):
    """The first events of a shared trace as steps of the scripted program."""
    steps = []
    with gzip.open(harness.SOURCE / "tests" / "data" / f"{name}.trace.gz", "rt") as lines:
        for line in lines:
            what, number, *_ = line.split()
            if what == "a":
                steps.append(f"a:b{number}:{line.split()[2]}")
            elif what == "f":
                steps.append(f"f:b{number}")
            elif what == "s":
                steps.append("s")
            if len(steps) == most:
                break
    return steps


class PageTest(harness.TestCase):
    def page(self, trace):
        """The page of a trace, as a URL."""
        done = harness.run([COMMAND, "report", trace, "-o", self.scratch / "page.html"], driver="sim")
        self.assertEqual(0, done.code, done.err)
        return f"file://{self.scratch}/page.html"

    def made(self, events=20000, *how):
        harness.run([MAKE, self.scratch / "made", events, *how], driver="unit")
        return self.page(self.scratch / "made")

    shared = None

    @classmethod
    def tearDownClass(cls):
        if cls.shared is not None:
            cls.shared.__exit__()

    def chromium(self, width=1280, height=1000):
        """The browser of all tests here: to start one takes longer than most of them."""
        if browser.PROGRAM is None:
            self.skipTest("Chromium is not installed")
        if harness.SANITIZE or harness.EMULATOR:
            self.skipTest("the page is the same in the plain build")
        if PageTest.shared is None:
            PageTest.shared = browser.Browser().__enter__()
        PageTest.shared.begin_anew(width, height)
        return contextlib.nullcontext(PageTest.shared)

    def said(self, page, selector):
        return page.run(f"document.querySelector({selector!r}).innerText")

    def chosen(self, page):
        """(moment, from, to)"""
        return tuple(int(page.run(f"document.body.dataset.{name}")) for name in ("moment", "from", "to"))

    def test_a_click_chooses_the_moment_and_everything_follows(self):
        with self.chromium() as page:
            page.open(self.made())
            before = self.chosen(page), page.pixels("#map"), page.pixels("#flame"), self.said(page, "#flame-caption"), self.said(page, "#map-caption")
            self.assertIn("the most of all", self.said(page, "#readout"))
            page.click("#over", 0.35)
            after = self.chosen(page), page.pixels("#map"), page.pixels("#flame"), self.said(page, "#flame-caption"), self.said(page, "#map-caption")
            for old, new in zip(before, after):
                self.assertNotEqual(old, new)
            self.assertNotIn("the most of all", self.said(page, "#readout"))
            page.key("p")
            self.assertEqual(before, (self.chosen(page), page.pixels("#map"), page.pixels("#flame"), self.said(page, "#flame-caption"), self.said(page, "#map-caption")))
            page.key("ArrowRight")
            self.assertEqual(before[0][0] + 1, self.chosen(page)[0])
            page.run("const s = document.querySelector('#map-slider'); s.value = 5; s.dispatchEvent(new Event('input'))")
            page.settle()
            self.assertEqual("5", page.run("document.body.dataset.mapMoment"))
            self.assertEqual([], page.complaints())

    def test_a_drag_chooses_a_stretch_and_everything_follows(self):
        with self.chromium() as page:
            page.open(self.made())
            selectors = ("#readout", "#sizes", "#lifetimes", "#calls", "table.holders")
            whole, texts = self.chosen(page), [self.said(page, one) for one in selectors]
            sums = page.run("document.querySelectorAll('#who button')[1].click()"), page.settle(), page.run("document.body.dataset.total")
            page.drag("#over", 0.4, 0.6)
            _, begin, end = self.chosen(page)
            self.assertTrue(whole[1] < begin < end < whole[2])
            for selector, old in zip(selectors, texts):
                self.assertNotEqual(old, self.said(page, selector), selector)
            self.assertLess(int(page.run("document.body.dataset.total")), int(sums[2]))
            page.key("+")
            self.assertLess(self.chosen(page)[2] - self.chosen(page)[1], end - begin)
            page.key("Escape")
            self.assertEqual(whole[1:], self.chosen(page)[1:])
            self.assertEqual(texts[1:4], [self.said(page, one) for one in selectors[1:4]])
            self.assertEqual([], page.complaints())

    def test_hovering_names_what_is_under_the_pointer(self):
        with self.chromium() as page:
            page.open(self.made())
            for selector, across, down, words in (("#over", 0.5, 0.5, r"event [\d,]+\n(.*\n)*pool: [\d.]+ MiB"), ("#flame", 0.2, 0.1, r"MiB, \d+ %"),
                                                  ("#map", 0.02, 0.03, r"held for .*(\n.*)*segment 0x7f2a"), (".bands", 0.5, 0.15, r"^phase \w+\n[\d.]+ .s from")):
                page.hover(selector, across, down)
                self.assertTrue(page.run("!document.querySelector('.tip').hidden"), selector)
                self.assertRegex(self.said(page, ".tip"), words)
            page.hover("h1")
            self.assertTrue(page.run("document.querySelector('.tip').hidden"))

    def test_stacks_can_be_inverted_searched_and_zoomed(self):
        with self.chromium() as page:
            page.open(self.made())
            pictures = {page.pixels("#flame")}
            for key, view in (("i", "inverted"), ("l", "library"), ("n", "normal")):
                page.key(key)
                self.assertEqual(view, page.run("document.body.dataset.view"))
                pictures.add(page.pixels("#flame"))
            self.assertEqual(3, len(pictures))
            page.key("/")
            page.type("backward")
            self.assertRegex(self.said(page, "#flame-caption"), r'"backward": [\d.]+ [KM]iB, [\d.]+ %')
            self.assertNotIn(page.pixels("#flame"), pictures)
            page.type(" nowhere")
            self.assertIn("not found", self.said(page, "#flame-caption"))
            page.run("document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input'))")
            page.click("#flame", 0.1, 0.3)
            self.assertIn("within", self.said(page, "#flame-caption"))
            self.assertNotEqual("", page.run("document.body.dataset.zoomed"))
            page.click("#zoom-out")
            self.assertNotIn("within", self.said(page, "#flame-caption"))
            page.run("document.querySelector('#flame').focus()")
            page.key("ArrowDown")
            page.key("Enter")
            self.assertIn("within", self.said(page, "#flame-caption"))
            self.assertEqual([], page.complaints())

    def test_dark_and_light_and_what_is_shown_can_be_chosen(self):
        with self.chromium() as page:
            page.open(self.made())
            light = page.run("getComputedStyle(document.body).backgroundColor"), page.pixels("#flame"), page.pixels("#map")
            page.key("d")
            dark = page.run("getComputedStyle(document.body).backgroundColor"), page.pixels("#flame"), page.pixels("#map")
            for one, other in zip(light, dark):
                self.assertNotEqual(one, other)
            page.key("d")
            self.assertEqual(light, (page.run("getComputedStyle(document.body).backgroundColor"), page.pixels("#flame"), page.pixels("#map")))
            maps = {page.pixels("#map")}
            for i in (1, 2):
                page.run(f"document.querySelectorAll('#segments button')[{i}].click()")
                page.settle()
                maps.add(page.pixels("#map"))
            self.assertEqual(3, len(maps))
            total = page.run("document.body.dataset.total")
            page.run("document.querySelectorAll('.legend input')[1].click()")
            page.settle()
            self.assertEqual(16 << 20, int(page.run("document.body.dataset.total")) - int(total))
            page.key("?")
            self.assertTrue(page.run("document.querySelector('#help').open"))
            self.assertEqual([], page.complaints())

    def test_a_printed_page_shows_everything_in_light_and_as_wide_as_the_paper(self):
        with self.chromium(width=1600) as page:
            page.open(self.made())
            page.key("d")
            page.run("window.dispatchEvent(new Event('beforeprint'))")
            page.call("Emulation.setEmulatedMedia", media="print")
            page.run("document.querySelector('main').style.width = '700px'")
            self.assertEqual("rgb(255, 255, 255)", page.run("getComputedStyle(document.body).backgroundColor"))
            self.assertEqual(0, page.run("[...document.querySelectorAll('svg rect, canvas')].filter(one => one.checkVisibility() === false).length"))
            self.assertGreater(page.run("document.querySelectorAll('svg rect').length"), 20)
            for button in ("nav", "div.bar", ".hint"):
                self.assertEqual("none", page.run(f"getComputedStyle(document.querySelector({button!r})).display"), button)
            widths = {page.rectangle(one)[2] for one in (".u-wrap canvas", ".bands", "#flame", "#map")}
            self.assertEqual({700}, widths)
            # What was drawn is no larger or smaller than the paper's own letters by much.
            self.assertTrue(0.6 < 700 / page.run("document.querySelector('.bands').width") < 1)
            page.call("Emulation.setEmulatedMedia", media="")
            page.run("document.querySelector('main').style.width = ''; window.dispatchEvent(new Event('afterprint'))")
            page.settle()
            self.assertEqual("dark", page.run("document.documentElement.dataset.theme"))
            self.assertGreater(page.rectangle("#flame")[2], 1400)
            self.assertEqual([], page.complaints())

    def test_the_page_is_one_file_that_asks_for_nothing(self):
        with self.chromium() as page:
            page.call("Network.enable")
            page.open(self.made())
            asked = [event["params"]["request"]["url"] for event in page.events if event.get("method") == "Network.requestWillBeSent"]
            self.assertEqual(1, len(asked), asked)

    def test_a_hostile_trace_brings_no_script_into_the_page(self):
        with self.chromium() as page:
            page.open(self.made(20000, "hostile"))
            self.assertTrue(page.run("document.title").endswith("· cupool report"))
            self.assertEqual((2, 0, 0), tuple(page.run(f"document.querySelectorAll({one!r}).length") for one in ("script", "img", "b b")))
            self.assertIn("</script>", self.said(page, "h1"))
            for key in ("i", "l", "n", "d"):
                page.key(key)
            page.hover(".bands", 0.5, 0.15)
            self.assertIn("<img src=x", self.said(page, ".tip"))
            self.assertEqual(0, page.run("document.querySelectorAll('img').length"))
            self.assertEqual([], page.complaints())

    def test_the_pages_of_real_programs_and_of_nothing_are_drawn_without_a_complaint(self):
        with self.chromium() as page:
            for name, steps in [(one, steps_of(one)) for one in ("gpt", "conv", "llama", "gnn")] + [("nothing", ["n:1"]), ("one", ["a:x:1000"])]:
                trace = self.scratch / name
                done = harness.with_cupool([lab.PROGRAM, *steps], env={"CUPOOL_TRACE": str(trace)}, driver="sim")
                self.assertEqual(0, done.code, done.err)
                page.open(self.page(trace))
                self.assertEqual([], page.complaints(), name)
                self.assertRegex(page.run("document.body.dataset.ready"), r"^\d+$", name)
                if len(steps) > 10:
                    # The page's peak is the trace's.
                    said = harness.run([COMMAND, "trace", trace], driver="sim").out
                    most = re.search(r"pool: .*, ([\d.]+ \w+) at most", said)[1]
                    shown = re.search(r"\(([\d.]+ \w+) held, the most of all\)", self.said(page, "#readout"))[1]
                    self.assertEqual(round(float(most.split()[0])), round(float(shown.split()[0])), name)

    def test_the_page_of_a_training_on_a_gpu_names_its_lines_of_python(self):
        trace = self.scratch / "llama"
        trace.write_bytes(gzip.decompress((harness.SOURCE / "tests/data/llama-h200.cupool.gz").read_bytes()))
        with self.chromium() as page:
            page.open(self.page(trace))
            self.assertEqual([], page.complaints())
            self.assertRegex(self.said(page, "#findings"), r"allocated by \S+ \(models\.py:\d+\)")
            page.key("/")
            page.type("causal_attention")
            self.assertRegex(self.said(page, "#flame-caption"), r'"causal_attention": [\d.]+ [KMG]iB, [\d.]+ %')
            self.assertEqual([], page.complaints())

    def test_kinds_of_memory_that_a_trace_has_differ_in_colour(self):
        with self.chromium() as page:
            trace = self.scratch / "census"
            harness.with_cupool([harness.BUILD / "tests" / "report" / "census"], env={"CUPOOL_TRACE": str(trace)}, driver="sim")
            page.open(self.page(trace))
            colours = page.run("[...document.querySelectorAll('.legend label i')].map(one => one.style.background)")
            self.assertGreaterEqual(len(colours), 5)
            self.assertEqual(len(colours), len(set(colours)))

    def test_the_pages_of_traces_of_any_values_are_drawn_without_a_complaint(self):
        with self.chromium() as page:
            for seed in (1, 2, 3):
                page.open(self.made(4000, "wild", seed))
                for key in ("i", "l", "n", "+", "ArrowLeft", "Escape", "p"):
                    page.key(key)
                page.hover("#map", 0.3, 0.3)
                self.assertEqual([], page.complaints(), seed)

    # ---- Another viewer.

    def test_speedscope_itself_opens_its_profile(self):
        if shutil.which("npm") is None:
            self.skipTest("npm is not installed")
        harness.run([MAKE, self.scratch / "made", 20000], driver="unit")
        with self.chromium() as page:
            got = subprocess.run(["npm", "pack", "--silent", "--fetch-retries=0", "--fetch-timeout=60000", "speedscope@1.25.0"], cwd=self.scratch, capture_output=True, check=False)
            if got.returncode != 0:
                self.skipTest("npm cannot reach its registry")
            subprocess.run(["tar", "-xzf", "speedscope-1.25.0.tgz"], cwd=self.scratch, check=True)
            self.assertEqual(0, harness.run([COMMAND, "report", "--speedscope", "-o", self.scratch / "p.json", self.scratch / "made"], driver="sim").code)
            # As its own command hands over a file.
            text = base64.b64encode((self.scratch / "p.json").read_bytes()).decode()
            (self.scratch / "p.js").write_text(f'speedscope.loadFileFromBase64("p.json", "{text}")')
            page.open(f"file://{self.scratch}/package/dist/release/index.html#localProfilePath={self.scratch}/p.js")
            page.wait("document.title.startsWith('train.py - speedscope')")
            self.assertIn("device memory held when it was most (1/3)", page.run("document.body.innerText"))


if __name__ == "__main__":
    harness.main()
