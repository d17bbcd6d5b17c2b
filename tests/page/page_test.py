"""Pages of the program, opened in a real browser: made from runs, from files of a GPU, from nothing, from ten thousand rows, and from
rows whose names would like to be scripts. Skips (77) where there is no Chromium.

HEADROOM is the program, HEADROOM_SOURCE_DIR the tree, CHROMIUM the browser."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import Browser  # noqa: E402

program = os.environ.get("HEADROOM", "headroom")
source = pathlib.Path(os.environ.get("HEADROOM_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

hostile = "</script><img src=x onerror=\"window.harmed=1\"><!--<script>window.harmed=1//"


def row(i):
    lens = [256 << (i % 8)]
    return {"variant": ["plain", "flash"][i % 2], "device": "a card", "dtype": "bf16", "batch": 8, "heads": 1 + i // 1000, "kv_heads": 1,
            "dim": 16 << (i // 16 % 4), "len_q": lens[0], "len_k": lens[0], "mask": ["full", "causal"][i // 8 % 2],
            "fwd_ms": 0.1 + i * 1.37e-3, "bwd_ms": 0.2 + i * 2.1e-3, "fwd_ms_std": 1e-3, "bwd_ms_std": 1e-3, "fwd_tflops": 1.5,
            "bwd_tflops": 1.25, "saved_bytes": 1000 * i, "peak_bytes": 3000 * i + 7, "forecast_peak_bytes": 3000 * i + 7,
            "max_error_o": 1e-3, "max_error_dq": 2e-3, "max_error_dk": 2e-3, "max_error_dv": 2e-3, "status": "ok", "why": "", "steps": 10,
            "warmup": 2}


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="headroom_pages_"))
        cls.db = cls.folder / "results.db"
        cls.browser = Browser(chromium)
        cls.headroom("attention", "--device", "cpu", "--batch", "1", "--dim", "16", "--len", "16,32,64", "--warmup", "0", "--steps", "2")
        cls.headroom("attention", "--device", "cpu", "--batch", "1", "--dim", "16", "--len", "16,32,64", "--warmup", "0", "--steps", "3")
        cls.headroom("step", "--device", "cpu", "--layers", "2", "--width", "32", "--heads", "2", "--vocab", "64", "--batch", "1", "--len", "16",
                     "--warmup", "0", "--steps", "2")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        shutil.rmtree(cls.folder)

    @classmethod
    def headroom(cls, *words):
        ended = subprocess.run([program, *words, "--db", str(cls.db)], cwd=cls.folder, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"{words}: {ended.stderr}")
        return ended.stdout

    def page(self, *words, name="page.html"):
        """Writes a report, opens it, and looks at what every page must be."""
        file = self.folder / name
        self.headroom("report", *words, "--out", str(file))
        self.assertLess(file.stat().st_size, 3_000_000)
        self.browser.open(file)
        self.clean()
        return file

    def clean(self):
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual([a for a in self.browser.addresses() if not a.startswith("file://")], [], "a page asks nobody for anything")
        self.assertEqual(self.browser.run("document.querySelectorAll('h1').length"), 1)

    def draw_all(self):
        self.browser.run("window.dispatchEvent(new Event('beforeprint')); window.dispatchEvent(new Event('afterprint'))")

    def test_a_run_has_its_charts_and_tables(self):
        self.page("1")
        self.draw_all()
        titles = self.browser.run("[...document.querySelectorAll('figcaption span')].map(e => e.textContent)")
        for title in ("Forward time over len", "Peak bytes over len", "Forecast against measured: peak_bytes", "Against plain"):
            self.assertTrue(any(t.startswith(title) for t in titles), (title, titles))
        lines = self.browser.run("document.querySelector('figure').chart.data.datasets.map(d => d.label)")
        self.assertTrue(all(re.search(r"~ len\^-?\d", line) for line in lines), lines)
        self.assertEqual(self.browser.run("document.querySelectorAll('[data-name=rows] tbody tr').length"), 6)
        painted = self.browser.run("""(() => { const c = document.querySelector('canvas');
            return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v !== 0) })()""")
        self.assertTrue(painted)
        self.clean()

    def test_a_table_sorts_filters_and_is_copied(self):
        self.page("1")
        heads = "[...document.querySelectorAll('[data-name=rows] th')]"
        is_it = "h => h.querySelector('button').title === 'Sort by fwd_ms'"
        column = f"{heads}.find({is_it})"
        values = f"""(() => {{ const rows = [...document.querySelectorAll('[data-name=rows] tbody tr')], at = {heads}.findIndex({is_it});
            return rows.map(r => Number(r.children[at].textContent)) }})()"""
        self.browser.run(f"{column}.querySelector('button').click()")
        self.assertEqual(self.browser.run(f"{column}.getAttribute('aria-sort')"), "ascending")
        up = self.browser.run(values)
        self.assertEqual(up, sorted(up))
        self.browser.run(f"{column}.querySelector('button').click()")
        self.assertEqual(self.browser.run(values), up[::-1])
        self.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        press = "[...document.querySelectorAll('[data-name=rows] .tools button')].find(b => b.textContent === '%s').click()"
        self.browser.run("navigator.clipboard.writeText = async text => { window.copied = text }")
        self.browser.run(press % "Copy CSV")
        copied = self.browser.run("window.copied").splitlines()
        self.assertTrue(copied[0].startswith("variant,device,dtype,batch"), copied[0])
        self.assertEqual(len(copied), 7)
        at = copied[0].split(",").index("fwd_ms")
        times = [float(line.split(",")[at]) for line in copied[1:]]
        self.assertEqual(times, sorted(times, reverse=True))
        self.browser.run(press % "Copy Markdown")
        self.assertTrue(self.browser.run("window.copied").startswith("| variant | len_q |"), "what is the same in every row has no column")
        self.clean()

    def test_copying_works_where_the_clipboard_is_refused(self):
        self.page("1")
        self.browser.run("navigator.clipboard.writeText = async () => { throw new Error('no') }")
        self.browser.run("document.addEventListener('copy', () => { window.copied = getSelection().toString() || document.activeElement.value })")
        self.browser.run("[...document.querySelectorAll('[data-name=rows] .tools button')].find(b => b.textContent === 'Copy CSV').click()")
        self.assertTrue(self.browser.run("new Promise(done => setTimeout(() => done(window.copied ?? ''), 50))").startswith("variant,"))

    def hover(self, figure="document.querySelector('figure')"):
        """Moves the mouse onto a chart's middle and answers what its tooltip says."""
        self.browser.run(f"{figure}.scrollIntoView({{block: 'center'}})")
        self.browser.run("new Promise(done => setTimeout(done, 150))")
        box = self.browser.run(f"""(() => {{ const f = {figure}, r = f.querySelector('canvas').getBoundingClientRect(), e = f.chart.getDatasetMeta(0).data;
            const p = e[Math.floor(e.length / 2)].tooltipPosition(); return [r.left + p.x, r.top + p.y] }})()""")
        self.browser.mouse("mouseMoved", *box)
        self.browser.run("new Promise(done => setTimeout(done, 80))")
        return self.browser.run(f"""(() => {{ const t = {figure}.chart.tooltip;
            return t.opacity === 0 ? '' : [...t.title, ...t.body.flatMap(b => b.lines), ...t.footer].join('\\n') }})()""")

    def test_a_point_says_what_it_is(self):
        self.page("1")
        self.draw_all()
        said = self.hover()
        self.assertRegex(said, r"len 32")
        self.assertRegex(said, r"(plain|flash).*(ms|µs)")

    def test_the_keyboard_reads_and_zooms(self):
        self.page("1")
        self.draw_all()
        self.browser.run("document.querySelector('canvas').focus()")
        self.browser.key("ArrowRight")
        self.assertIn("len 16", self.browser.run("document.getElementById('said').textContent"))
        axis = "(() => { const x = document.querySelector('figure').chart.scales.x; return [x.min, x.max] })()"
        whole = self.browser.run(axis)
        self.browser.key("+", text="+")
        near = self.browser.run(axis)
        self.assertGreater(near[0], whole[0])
        self.assertLess(near[1], whole[1])
        self.browser.key("Escape")
        self.assertEqual(self.browser.run(axis), whole)

    def test_dragging_zooms_and_a_double_click_goes_back(self):
        self.page("1")
        self.draw_all()
        self.browser.run("document.querySelector('figure').scrollIntoView({block: 'center'})")
        left, top, width, height = self.browser.run("""(() => { const f = document.querySelector('figure'), a = f.chart.chartArea,
            r = f.querySelector('canvas').getBoundingClientRect(); return [r.left + a.left, r.top + a.top, a.width, a.height] })()""")
        axis = "(() => { const x = document.querySelector('figure').chart.scales.x; return [x.min, x.max] })()"
        whole = self.browser.run(axis)
        y = top + height / 2
        self.browser.mouse("mousePressed", left + width * 0.25, y, button="left", clickCount=1)
        self.browser.mouse("mouseMoved", left + width * 0.5, y, button="left", buttons=1)
        self.browser.mouse("mouseReleased", left + width * 0.5, y, button="left", clickCount=1)
        near = self.browser.run(axis)
        self.assertAlmostEqual(near[0], whole[0] ** 0.75 * whole[1] ** 0.25, delta=near[0] * 0.02)
        self.assertAlmostEqual(near[1], (whole[0] * whole[1]) ** 0.5, delta=near[1] * 0.02)
        for count in (1, 2):
            self.browser.mouse("mousePressed", left + 20, y, button="left", clickCount=count)
            self.browser.mouse("mouseReleased", left + 20, y, button="left", clickCount=count)
        self.assertEqual(self.browser.run(axis), whole)
        self.clean()

    def test_colours_change(self):
        self.page("1")
        self.draw_all()
        seen = set()
        for _ in range(3):
            self.browser.run("document.querySelector('.theme').click()")
            seen.add(self.browser.run("document.documentElement.dataset.theme ?? 'auto'"))
            ground = self.browser.run("getComputedStyle(document.body).backgroundColor")
            grid = self.browser.run("document.querySelector('figure').chart.options.scales.x.grid.color")
            self.assertEqual(grid, self.browser.run("getComputedStyle(document.documentElement).getPropertyValue('--line').trim()"))
            seen.add(ground)
        self.assertEqual(len(seen), 5, seen)  # three names, two grounds
        self.clean()

    def test_one_choice_is_made_in_every_frame(self):
        file = self.folder / "choices.json"
        rows = [row(i) for i in range(64)]
        file.write_text(json.dumps({"device": {"name": "a card", "kind": "cpu"}, "rows": rows}))
        self.page(str(file), name="choices.html")
        self.draw_all()
        chosen = "[...document.querySelectorAll('figure select')].map(s => s.value)"
        self.assertGreater(len(self.browser.run(chosen)), 3)
        self.browser.run("""(() => { const s = document.querySelector('figure select'); s.selectedIndex = 1;
            s.dispatchEvent(new Event('change')) })()""")
        word = self.browser.run("document.querySelector('figure select').value")
        for other in self.browser.run(chosen):
            self.assertTrue(other == word or other.endswith(" · " + word), (other, word))
        self.clean()

    def test_a_name_keeps_its_colour(self):
        self.page("1")
        self.draw_all()
        colours = self.browser.run("""[...document.querySelectorAll('figure')].flatMap(f => f.chart.data.datasets
            .filter(d => !d.continues).map(d => [d.label.split(' · ~ ')[0], d.borderColor]))""")
        for variant in ("plain", "flash"):
            seen = {colour for name, colour in colours if name == variant}
            self.assertEqual(len(seen), 1, colours)
        self.assertNotEqual(*[next(c for n, c in colours if n == v) for v in ("plain", "flash")])

    def test_a_profile_shows_what_stood_by_category(self):
        page = self.folder / "profile.html"
        self.headroom("profile", "step", "--device", "cpu", "--layers", "2", "--width", "32", "--heads", "2", "--vocab", "64", "--batch", "1",
                      "--len", "16", "--steps", "2", "--out", str(page))
        self.browser.open(page)
        self.draw_all()
        self.clean()
        legend = "[...document.querySelectorAll('figure[data-kind=areas] .legend button')].map(b => b.textContent)"
        lives = self.browser.run(legend)
        for category in ("parameter", "gradient", "optimizer", "saved for backward"):
            self.assertIn(category, lives)
        said = self.hover("document.querySelector('figure[data-kind=areas]')")
        self.assertRegex(said, r"[+−] .*\d+x\d+, .*\((parameter|optimizer|gradient|input|saved for backward|forward|backward|workspace)\)")

    def test_a_step_shows_its_phases_and_who_lives(self):
        self.page("3")
        self.draw_all()
        kinds = self.browser.run("[...document.querySelectorAll('figure')].map(f => f.dataset.kind)")
        self.assertIn("bars", kinds)
        self.assertIn("areas", kinds)
        said = self.hover("document.querySelector('figure[data-kind=areas]')")
        self.assertRegex(said, r"all: .*iB")
        self.assertRegex(said, r"[+−] .*\d+×\d+ .*\((parameter|optimizer|gradient|input|saved for backward|forward|backward|workspace)\)")

    def test_two_runs_begin_with_their_differences(self):
        self.page("1", "2")
        first = self.browser.run("document.querySelector('h2').textContent")
        self.assertEqual(first, "run 2 against run 1")
        # A column that says the same in every row is said once: on a busy machine every verdict can be "unclear".
        counts = dict(self.browser.run("[...document.querySelectorAll('dl dt')].map(t => [t.textContent, t.nextElementSibling.textContent])"))
        kinds = sum(int(counts[verdict]) > 0 for verdict in ("faster", "slower", "same", "unclear"))
        of_rows = self.browser.run("document.querySelectorAll('section .verdict').length")
        self.assertGreater(kinds, 0)
        self.assertEqual(of_rows > 0, kinds > 1, counts)

    def test_results_of_a_gpu(self):
        files = sorted(f for f in (source / "bench/results").iterdir() if f.suffix in (".json", ".csv"))
        self.assertTrue(files)
        refused = []
        for file in files:
            with self.subTest(file.name):
                try:
                    self.page(str(file))
                except RuntimeError as error:  # what a card answered to other programs, without a column that is measured
                    self.assertIn("has no column of something measured", str(error))
                    self.assertFalse({"status", "fwd_ms", "ms"} & set(file.read_text().split("\n", 1)[0].split(",")), "this program's own rows")
                    refused.append(file.name)
                    continue
                self.draw_all()
                self.assertGreater(self.browser.run("document.querySelectorAll('tbody tr, dl > div').length"), 1)
                self.clean()
        self.assertLess(len(refused), len(files) / 4, refused)

    def test_an_empty_store(self):
        ended = subprocess.run([program, "report", "--out", str(self.folder / "empty.html")],
                               env={**os.environ, "XDG_DATA_HOME": str(self.folder / "nothing here")})
        self.assertEqual(ended.returncode, 0)
        self.browser.open(self.folder / "empty.html")
        self.clean()
        self.assertIn("Nothing has been measured yet", self.browser.run("document.body.textContent"))

    def test_ten_thousand_rows(self):
        file = self.folder / "many.json"
        file.write_text(json.dumps({"device": {"name": "a card", "kind": "cuda", "memory_bytes": 80 << 30}, "rows": [row(i) for i in range(10_000)]}))
        self.page(str(file), name="many.html")
        started = time.monotonic()
        self.draw_all()
        self.browser.run("document.querySelector('[data-name=rows] th button').click()")
        self.assertLess(time.monotonic() - started, 20)
        self.assertIn("10\u202f000 rows", self.browser.run("document.querySelector('[data-name=rows] .count').textContent"))
        self.browser.run("document.querySelector('[data-name=rows] .more').click()")
        self.assertGreater(self.browser.run("document.querySelectorAll('[data-name=rows] tbody tr').length"), 500)
        self.clean()

    def test_no_name_becomes_a_script(self):
        rows = [dict(row(i), variant=hostile + str(i % 2), mask=hostile, why=hostile) for i in range(8)]
        rows.append({hostile: hostile, "len_q": 5, hostile + "_ms": 3.0})
        file = self.folder / "<img src=x onerror=\"window.harmed=1\">.json"
        file.write_text(json.dumps({"device": {"name": hostile, hostile: hostile}, "command": hostile, "notes": [hostile], "rows": rows}))
        charted = self.folder / "lines.json"
        charted.write_text(json.dumps({"rows": [{"phase": hostile, "model": hostile, "len": 1 << i, hostile + "_ms": 1.0 + i, "ms": 2.0 + i,
                                                 "forecast_ms": 2.0} for i in range(4)]}))
        for words in ([str(file)], [str(charted)], [str(file), str(charted)]):
            page = self.page(*words)
            self.draw_all()
            self.hover() if self.browser.run("document.querySelector('figure')?.chart !== undefined") else None
            self.assertIsNone(self.browser.run("window.harmed"))
            self.assertEqual(self.browser.run("document.images.length"), 0)
            self.assertEqual(self.browser.run("document.scripts.length"), 3)
            self.assertEqual(page.read_text().count("</script>"), 3)
            self.clean()
        # and if markup ever got in, the policy would still not run it
        self.browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.harmed=1\">')")
        self.assertIsNone(self.browser.run("new Promise(done => setTimeout(() => done(window.harmed), 100))"))

    def test_a_phone_and_paper(self):
        self.page("1", "3")
        try:
            self.browser.width(390)
            self.draw_all()
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 390)
        finally:
            self.browser.call("Emulation.clearDeviceMetricsOverride")
        self.browser.run("window.dispatchEvent(new Event('beforeprint'))")
        widths = self.browser.run("[...document.querySelectorAll('canvas')].map(c => c.getBoundingClientRect().width)")
        self.browser.run("window.dispatchEvent(new Event('afterprint'))")
        self.assertGreater(min(widths), 500, "drawn anew for a sheet of paper")
        self.assertLess(max(widths), 182 / 25.4 * 96, "A4 within its margins")
        self.assertGreater(len(self.browser.call("Page.printToPDF", printBackground=True)["data"]), 20_000)
        self.clean()

    def plan(self, *words, name):
        """The page of a command, opened; what does not fit ends with 3 and is a page too."""
        file = self.folder / name
        ended = subprocess.run([program, *words, "--out", str(file)], capture_output=True, text=True)
        self.assertIn(ended.returncode, (0, 3), ended.stderr)
        self.browser.open(file)
        self.draw_all()
        self.clean()

    def test_a_plan_shows_its_fastest_settings_apart(self):
        self.plan("plan", "--model", "small", "--batch", "4", "--device", "h100", "--gpus", "2", name="plan.html")
        scale = "document.querySelector('figure').chart.scales.x"
        self.assertEqual(self.browser.run(scale + ".type"), "logarithmic")
        frontier = "document.querySelector('figure').chart.data.datasets.find(d => d.label === 'frontier')"
        self.assertGreater(self.browser.run(frontier + ".pointRadius"), 0)
        width, area = self.browser.run(f"""(() => {{ const c = document.querySelector('figure').chart, p = {frontier}.data;
            return [Math.abs({scale}.getPixelForValue(p.at(-1).x) - {scale}.getPixelForValue(p[0].x)), c.chartArea.width] }})()""")
        self.assertGreater(width, area * 0.05)

    def test_a_wide_table_of_one_row_is_its_values(self):
        self.plan("memory", "model", "--as", "pytorch", "--model", "small", "--device", "h100", name="one.html")
        self.assertEqual(self.browser.run("document.querySelectorAll('[data-name=rows]').length"), 0)
        names = self.browser.run("[...document.querySelectorAll('dl dt')].map(e => e.textContent)")
        self.assertIn("train peak bytes", names)
        self.assertIn("Tensors of the step", self.browser.run("document.body.textContent"))

    def test_no_line_ends_within_an_option(self):
        self.plan("plan", "--as", "pytorch", "--model", "llama-3.1-8b", "--batch", "2", "--len", "2048", "--device", "4090", name="options.html")
        try:
            for width in (1280, 700):  # a desk, a sheet of paper
                self.browser.width(width)
                cut = self.browser.run("""[...document.querySelectorAll('.option')].filter(e =>
                    e.getClientRects().length > 1 || e.offsetHeight > 1.6 * parseFloat(getComputedStyle(e).lineHeight)).map(e => e.textContent)""")
                self.assertEqual(cut, [])
            self.assertGreater(self.browser.run("document.querySelectorAll('h1 .option').length"), 3)
        finally:
            self.browser.call("Emulation.clearDeviceMetricsOverride")

    def test_what_is_read_together_stands_together(self):
        files = [str(f) for f in sorted((source / "bench/cards").glob("*.json"))]
        self.page(*files, name="cards.html")
        self.draw_all()
        bars = self.browser.run("""(() => { const c = document.querySelector('figure').chart;
            return [c.data.labels.map(l => l.join(' ')), c.data.datasets.map(d => d.data)] })()""")
        labels, cards = bars
        self.assertEqual(len(cards), len(files))
        named = [i for i, label in enumerate(labels) if label]
        self.assertGreater(len(labels), len(named), "the second card's bar is below the first's")
        self.browser.run("window.dispatchEvent(new Event('beforeprint'))")
        tallest = self.browser.run("Math.max(...[...document.querySelectorAll('figure')].map(f => f.getBoundingClientRect().height))")
        self.browser.run("window.dispatchEvent(new Event('afterprint'))")
        self.assertLess(tallest, 820, "a chart that is taller than a sheet leaves the page before it empty")

    def test_names_of_bars_are_whole_words_on_a_phone(self):
        files = [str(f) for f in sorted((source / "bench/cards").glob("*.json"))]
        try:
            self.browser.width(400)
            self.page(*files, name="phone.html")
            self.draw_all()
            lines = [l for l in self.browser.run("document.querySelector('figure').chart.data.labels") if l and l[0]]
            self.assertEqual([l for l in lines if any(part.startswith(",") for part in l)], [])
            for whole in ("attention-backward, PyTorch's flash", "attention-forward, FlashAttention-3"):
                self.assertIn(whole, [" ".join(l) for l in lines])
        finally:
            self.browser.call("Emulation.clearDeviceMetricsOverride")

    def test_without_the_library_a_chart_is_its_numbers(self):
        file = self.page("1")
        text = file.read_text()
        begin = text.index("/*!\n * Chart.js") if "/*!\n * Chart.js" in text else None
        if begin is None:
            self.skipTest("built without a chart library")
        bare = self.folder / "bare.html"
        bare.write_text(text[:begin] + text[text.index("</script>", begin):])
        self.browser.open(bare)
        self.clean()
        self.assertIn("built without a chart library", self.browser.run("document.body.textContent"))
        self.assertGreater(self.browser.run("document.querySelectorAll('figure [data-name=numbers] tbody tr').length"), 5)


if __name__ == "__main__":
    if not chromium:
        print("skipped: there is no Chromium here (Debian: chromium)")
        sys.exit(77)
    try:
        Browser(chromium).close()
    except (TimeoutError, RuntimeError, OSError) as e:
        print(f"skipped: {chromium} does not start here ({e})")
        sys.exit(77)
    unittest.main(verbosity=2)
