"""`titanium report` and `titanium watch` in a real browser: what is on the page, what it does, and files that are broken."""

import base64
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.request
import zlib

import browser
import PIL.Image
import run_folders

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PIPELINE = {"schedule": "1F1B", "csv": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"}


def one_pixel_png():
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
            + chunk(b"IEND", b""))


def titanium(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)


def remove(folder):
    """Again where a process of the browser has written meanwhile, which may outlive it for a moment."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


class Page(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(remove, self.folder)
        self.page = self.folder / "report.html"

    def report(self, *folders, script="", **options):
        """The DOM of the page, after `script` has run at its end."""
        done = titanium("report", *folders, "--out", self.page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = self.page.read_text()
        self.page.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
        dom = browser.Browser(self, self.folder).dom(f"file://{self.page}", until="data-drawn", **options)
        self.check_ready(dom)
        return dom

    def check_ready(self, dom):
        body = dom.one("body")
        self.assertIsNone(body.attributes.get("data-error"))
        self.assertEqual(body.attributes.get("data-ready"), "true")
        self.assertEqual(body.attributes.get("data-drawn"), str(len(dom.all("article", class_="plot"))))

    def test_a_run_has_its_status_plots_and_configuration(self):
        failure = {"event": "error", "rank": 3, "unix_s": 1_790_000_900, "message": "rank 3: CUDA error: an illegal memory access"}
        again = {"event": "start", "unix_s": 1_790_000_950, "step": 800, "total_steps": 2000, "log_freq": 10, "model": "llama3 8B", "planned_memory_gib": 97.1,
                 "changed": [{"name": "optimizer.lr", "value": "3e-4", "default": "8e-4", "source": "a.toml:3"}], "environment": {"host": "node-7"},
                 "config": {"training": {"steps": 2000}}, "pipeline": PIPELINE}
        run = run_folders.write_run(self.folder / "first", experts=3, ranks=4, events=[failure, again], end="completed")
        dom = self.report(run)
        card = dom.one("article", data_run="first")
        self.assertEqual(card.attributes["data-state"], "completed")
        tiles = {tile.one("dt").text: tile.one("dd").text for tile in card.one("dl").children}
        self.assertEqual(tiles["step"], "1,000of 2,000")
        self.assertEqual(tiles["tokens"], "524 M")
        self.assertEqual(tiles["restarts"], "1")
        self.assertRegex(tiles["loss"], r"^2\.\d+$")
        self.assertRegex(tiles["goodput"], r"^\d+\.\d %$")
        self.assertEqual(tiles["last checkpoint"], "800")
        self.assertIn("illegal memory access", card.one(class_="error").text)
        self.assertEqual([plot.attributes["data-plot"] for plot in dom.all("article", class_="plot")],
                         ["loss", "grad_norm", "lr", "tps", "mfu", "memory", "step_s", "data_wait", "ranks", "expert_load", "expert_entropy", "expert_dead"])
        for plot in dom.all("article", class_="plot"):
            self.assertGreater(int(plot.one("canvas").attributes["data-points"]), 50, plot.attributes)
        self.assertEqual([entry.text for entry in dom.one(data_plot="loss").one(class_="legend").all("span")], ["training", "validation"])
        self.assertEqual([entry.text for entry in dom.one(data_plot="memory").one(class_="legend").all("span")], ["reserved", "in tensors", "planned"])
        self.assertEqual(len(dom.one(data_plot="ranks").one(class_="legend").all("span")), 4)
        self.assertIn("optimizer.lr", dom.one("details", data_part="changed").text)
        self.assertIn("node-7", dom.one("details", data_part="environment").text)
        self.assertTrue(dom.one("details", data_part="pipeline").one("img").attributes["alt"].startswith("1F1B: 2 ranks, 2 stages"))

    def test_memory_of_a_process_is_one_curve_without_a_plan(self):
        """On the CPU nobody counts tensors, and a process is more than those."""
        run = run_folders.write_run(self.folder / "cpu", end="completed")
        (run / "metrics.jsonl").write_text(re.sub(r'"memory_active_gib": [\d.]+', '"memory_active_gib": null', (run / "metrics.jsonl").read_text()))
        (run / "run.jsonl").write_text((run / "run.jsonl").read_text().replace('"planned_memory_gib": 97.1', '"planned_memory_gib": 0'))
        memory = self.report(run).one(data_plot="memory")
        self.assertEqual(memory.one(class_="legend").all("span"), [])
        self.assertRegex(memory.one("canvas").attributes["aria-label"], r"^Memory: +98\.\d+$")

    def test_every_validation_set_has_a_curve_and_a_tile(self):
        sets = [{"event": "validation", "unix_s": 1_790_000_100, "step": step, "loss": loss, "set": name}
                for step in (200, 400) for name, loss in (("books", 3.5), ("web & more", 2.5))]
        run = run_folders.write_run(self.folder / "sets", events=sets, end="completed")
        lines = [line for line in (run / "run.jsonl").read_text().splitlines() if '"validation"' not in line or '"set"' in line]
        (run / "run.jsonl").write_text("\n".join(lines) + "\n")
        dom = self.report(run)
        self.assertEqual([entry.text for entry in dom.one(data_plot="loss").one(class_="legend").all("span")],
                         ["training", "validation, books", "validation, web & more"])
        tiles = {tile.one("dt").text: tile.one("dd").text for tile in dom.one("article", data_run="sets").one("dl").children}
        self.assertEqual((tiles["validation, books"], tiles["validation, web & more"]), ("3.5", "2.5"))

    def test_several_runs_lie_over_each_other(self):
        first = run_folders.write_run(self.folder / "base", ranks=3, end="completed", changed=[("optimizer.lr", "1e-4", "8e-4")])
        second = run_folders.write_run(self.folder / "higher lr", steps=700, loss=9.5, changed=[("optimizer.lr", "3e-4", "8e-4")])
        # On a phone, where nothing may stand out to the right.
        script = """
          document.body.dataset.over = document.documentElement.scrollWidth - innerWidth;
          const place = (id) => document.getElementById(id).getBoundingClientRect();
          const crowded = () => ['reset', 'theme'].some((id) => place(id).top < place('smooth-value').bottom && place(id).width && place(id).left < place('smooth-value').right);
          const before = crowded(); zoomTo([100, 200]); document.body.dataset.crowded = [before, crowded()];"""
        dom = self.report(first, second, size=(375, 800), script=script)
        self.assertEqual((dom.one("body").attributes["data-over"], dom.one("body").attributes["data-crowded"]), ("0", "false,false"))
        self.assertEqual([card.attributes["data-run"] for card in dom.all("article", class_="run")], ["base", "higher lr"])
        legend = [entry.text for entry in dom.one(data_plot="grad_norm").one(class_="legend").all("span")]
        self.assertEqual(legend, ["base", "higher lr"])
        # The colour is the run's, so the curves of one run differ by their dashes.
        marks = [entry.one("i").attributes.get("class", "") for entry in dom.one(data_plot="ranks").one(class_="legend").all("span")]
        self.assertEqual(marks, ["", "dash", "dots"])
        row = [cell.text for cell in dom.one("details", data_part="changed").all("tr")[1].all("td")]
        self.assertEqual(row, ["optimizer.lr", "1e-4", "3e-4", "8e-4"])

    def test_what_a_reader_does_with_a_plot(self):
        run = run_folders.write_run(self.folder / "run", steps=3000, log_freq=1)
        script = """
          const out = {}, plot = document.querySelector('[data-plot=loss]'), canvas = plot.querySelector('canvas');
          const frame = () => { plots.forEach(draw); return canvas.dataset.range; };
          const point = (type, share) => { const box = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new PointerEvent(type, {clientX: box.left + 56 + share * (box.width - 66), clientY: box.top + 60, pointerId: 1, bubbles: true})); };
          canvas.setPointerCapture = () => {};
          out.whole = frame();
          point('pointermove', 0.5); out.tip = document.getElementById('tip').innerText;
          plot.querySelector('.push').click(); out.log = frame(); plot.querySelector('.push').click();
          point('pointerdown', 0.5); point('pointermove', 0.9); point('pointerup', 0.9); out.zoomed = frame(); out.reset = document.getElementById('reset').disabled;
          document.getElementById('reset').click(); out.back = frame();
          const smooth = document.getElementById('smooth'); smooth.value = 90; smooth.dispatchEvent(new Event('input'));
          point('pointermove', 0.5); out.smoothed = document.getElementById('tip').innerText;
          const axis = document.getElementById('axis'); axis.value = 'tokens'; axis.dispatchEvent(new Event('change')); frame();
          point('pointermove', 0.5); out.tokens = document.getElementById('tip').innerText;
          const before = document.documentElement.dataset.theme; document.getElementById('theme').click();
          out.theme = [before, document.documentElement.dataset.theme].sort();
          document.body.dataset.result = JSON.stringify(out);"""
        result = json.loads(self.report(run, script=script).one("body").attributes["data-result"])
        low, high = map(float, result["whole"].split())
        zoomed_low, zoomed_high = map(float, result["zoomed"].split())
        self.assertLess(zoomed_high, high / 2, result)  # the steep beginning is out of the picture
        self.assertFalse(result["reset"])
        self.assertEqual(result["back"], result["whole"])
        self.assertNotEqual(result["log"], result["whole"])
        self.assertRegex(result["tip"].replace("\n", " "), r"^step 1,5\d\d.*training ?\d\.\d+", result)
        self.assertRegex(result["smoothed"], r"\d\.\d+ \(\d\.\d+\)")
        self.assertRegex(result["tokens"].replace("\n", " "), r"^tokens 78\d M.*step 1,[45]\d\d")
        self.assertEqual(result["theme"], ["dark", "light"])

    def test_sources_of_a_mix_have_a_plot_with_their_names_and_unknown_numbers_one_each(self):
        run = run_folders.write_run(self.folder / "mix", experts=2, end="completed")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            row |= {"tokens_by_source": {"web_crawl_2025": row["tokens"] * 3 // 4, "books": row["tokens"] // 4, "a/b": 7}, "my_own_number": row["step"] * 2,
                    "own": {"deep_number": 1.5}}
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        dom = self.report(run)
        named = {plot.attributes["data-plot"]: [entry.text for entry in plot.one(class_="legend").all("span")] for plot in dom.all("article", class_="plot")}
        self.assertEqual(named["sources"], ["a/b", "books", "web_crawl_2025"])
        self.assertEqual(named["expert_load"], ["layer 0", "layer 1"])
        self.assertEqual([name for name in named if name.startswith("other-")], ["other-my_own_number", "other-own/deep_number"])
        for name in ("sources", "other-my_own_number", "other-own/deep_number"):
            curves = 3 if name == "sources" else 1
            self.assertEqual(dom.one(data_plot=name).one("canvas").attributes["data-points"], str(curves * len(rows)), name)
        self.assertRegex(dom.one(data_plot="other-my_own_number").one("canvas").attributes["aria-label"], r"^my_own_number: +2,000$")

    MARKS = """
      const near = (a, b) => Math.abs(a - b) < 90;
      const [red, green, blue] = (() => { const probe = document.createElement('canvas').getContext('2d');
        probe.fillStyle = getComputedStyle(root).getPropertyValue('--bad').trim(); probe.fillRect(0, 0, 1, 1); return probe.getImageData(0, 0, 1, 1).data; })();
      document.body.dataset.marks = JSON.stringify(plots.map((plot) => {
        draw(plot);
        const ratio = plot.canvas.width / plot.canvas.clientWidth, context = plot.canvas.getContext('2d'), { box, scale } = plot;
        const column = (x) => context.getImageData(Math.floor(x * ratio), Math.round(box.top * ratio), 1, Math.round((box.bottom - box.top) * ratio)).data;
        const dashed = (step) => { const data = column(Math.round(scale.x(step)) + 0.5); let found = 0;
          for (let i = 0; i < data.length; i += 4) found += data[i + 3] > 100 && near(data[i], red) && near(data[i + 1], green) && near(data[i + 2], blue);
          return found / (data.length / 4); };
        const alpha = (x, y) => context.getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data[3];
        const triangle = (step) => alpha(scale.x(step), box.bottom - 2) > 100 && alpha(scale.x(step), box.bottom - 4) > 60 && alpha(scale.x(step) - 6, box.bottom - 2) < 60;
        return { id: plot.spec.id, restart: dashed(900), elsewhere: dashed(860), checkpoints: [200, 400, 600, 800].map(triangle), between: triangle(330) };
      }));"""

    def test_checkpoints_and_restarts_are_marked_on_every_plot(self):
        again = {"event": "start", "unix_s": 1_790_000_950, "step": 900, "total_steps": 2000, "log_freq": 10, "model": "llama3 8B"}
        run = run_folders.write_run(self.folder / "run", events=[again], end="completed")
        marks = json.loads(self.report(run, script=self.MARKS).one("body").attributes["data-marks"])
        self.assertEqual(len(marks), 8)
        for plot in marks:
            self.assertGreater(plot["restart"], 0.4, plot)  # dashes of 4 with gaps of 3
            self.assertLess(plot["elsewhere"], 0.2, plot)
            self.assertEqual((plot["checkpoints"], plot["between"]), ([True] * 4, False), plot)

    def test_a_screenshot_has_the_curves_in_both_themes(self):
        run = run_folders.write_run(self.folder / "run", ranks=3, end="completed")
        self.report(run)
        brightness = {}
        for theme in ("light", "dark"):
            file = self.folder / f"{theme}.png"
            browser.Browser(self, self.folder).screenshot(f"file://{self.page}?theme={theme}", file, size=(1000, 2400))
            with PIL.Image.open(file) as image:
                picture = image.convert("RGB")
            self.assertEqual(picture.size, (1000, 2400))
            brightness[theme] = sum(picture.getpixel((2, 2390)))
            colors = {color: count for count, color in picture.getcolors(1 << 24)}
            self.assertGreater(colors.get((0x2B, 0xA3, 0x7A), 0), 60, theme)  # the curve of the third rank; its mark in the legend has 36 pixels at most
        self.assertGreater(brightness["light"], 3 * 200)
        self.assertLess(brightness["dark"], 3 * 60)

    def test_text_of_a_run_is_text(self):
        events = [{"event": "error", "rank": 0, "unix_s": 1_790_000_900, "message": EVIL}]
        run = run_folders.write_run(self.folder / "run", events=events, changed=[(EVIL, EVIL, EVIL)])
        dom = self.report(run)
        self.assertNotIn("owned", dom.one("title").text)
        self.assertEqual(dom.one(class_="error").one("pre").text, EVIL)
        self.assertEqual(dom.all("img"), [])

    def test_drawn_images_are_shown_with_their_captions(self):
        run = run_folders.write_run(self.folder / "run", events=[self.drew(200, "a red circle"), self.drew(400, EVIL)])
        (run / "img").mkdir()
        for step in (200, 400):
            (run / f"img/{step}.png").write_bytes(one_pixel_png())
        dom = self.report(run)
        card = dom.one("article", data_images="run")
        self.assertEqual([title.text for title in card.all("h3")], ["step 400", "step 200"])
        self.assertEqual([text.text for text in card.all("figcaption")], [EVIL, "a red circle"])
        self.assertEqual(len(card.all("img")), 2)
        self.assertNotIn("owned", dom.one("title").text)

    def drew(self, step, caption):
        return {"event": "images", "unix_s": 1_790_000_100, "step": step, "images": [{"file": f"img/{step}.png", "caption": caption}]}

    def test_damaged_and_half_written_files(self):
        run = run_folders.write_run(self.folder / "run")
        content = (run / "metrics.jsonl").read_bytes()
        (run / "metrics.jsonl").write_bytes(content[:3000] + b"\x00\xff garbage \n" + content[3000:-40])
        (run / "run.jsonl").write_bytes((run / "run.jsonl").read_bytes()[:-25])
        dom = self.report(run)
        self.assertRegex(dom.one("article", data_run="run").text, r"[12] damaged lines? of metrics\.jsonl left out\.")
        self.assertGreater(int(dom.one(data_plot="loss").one("canvas").attributes["data-points"]), 90)
        (run / "metrics.jsonl").write_bytes(b"")
        (run / "run.jsonl").write_bytes(b"\n{}\n[1, 2]\n")
        self.assertIn("No step has been logged yet.", self.report(run).one(id="plots").text)

    def test_a_live_page_follows_the_run(self):
        run = run_folders.write_run(self.folder / "run", steps=100, total=1000)
        command = [PROGRAM, "watch", str(run), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                url = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline()).group()
                dom = browser.Browser(self, self.folder).dom(url, until="data-drawn")
                self.check_ready(dom)
                self.assertEqual(dom.one(id="live").text, "live")
                self.assertIn("100of 1,000", dom.one("article", data_run="run").text)
                before = json.load(urllib.request.urlopen(url + "data.json"))
                with open(run / "metrics.jsonl", "a") as file:
                    file.write('{"step": 110, "loss": 1.5}\n{"step": 120, "lo')
                with open(run / "run.jsonl", "a") as file:
                    file.write(json.dumps(self.drew(100, "a red circle")) + "\n")
                (run / "img").mkdir()
                (run / "img/100.png").write_bytes(one_pixel_png())
                after = json.load(urllib.request.urlopen(url + "data.json"))
                images = json.load(urllib.request.urlopen(url + "images.json"))
                drawn = browser.Browser(self, self.folder).dom(url)
                part = json.load(urllib.request.urlopen(url + "data.json?from=50&to=60"))
            finally:
                server.send_signal(signal.SIGINT)
        self.assertEqual(server.returncode, 0)
        self.assertEqual([data["runs"][0]["summary"]["step"] for data in (before, after)], [100, 110])
        self.assertEqual(after["runs"][0]["images"], [{"step": 100, "images": [{"caption": "a red circle"}]}])
        self.assertEqual(images[0][0]["images"][0]["src"], "data:image/png;base64," + base64.b64encode(one_pixel_png()).decode())
        self.assertEqual(drawn.one("article", data_images="run").one("figcaption").text, "a red circle")
        self.assertEqual(part["runs"][0]["series"]["loss"]["x"], [40, 50, 60, 70])


class Commands(unittest.TestCase):
    def test_refusals(self):
        with tempfile.TemporaryDirectory() as folder:
            done = titanium("report", folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("has neither metrics.jsonl nor run.jsonl. Give the job.dump_folder of a run", done.stderr)
            self.assertEqual(titanium("watch", folder).returncode, 2)

    def test_text_fits_a_terminal(self):
        with tempfile.TemporaryDirectory() as name:
            run = run_folders.write_run(pathlib.Path(name) / "run", end="completed")
            done = titanium("watch", run, "--text")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 15)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertRegex(lines[-1], r"^completed  step 1,000/2,000 50%  loss 2\.\d{4}  11\.\d k tok/s")


if __name__ == "__main__":
    unittest.main()
