"""A real browser without a window, and what a page looks like in it."""

import html.parser
import pathlib
import shutil
import subprocess

from skipped import skip

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent, self.children = tag, attributes, parent, []

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag=None, **attributes):
        """The elements below with this tag and these attributes; `data_plot` stands for data-plot, `class_` for one of the classes."""
        found = []
        for child in self.children:
            if isinstance(child, str):
                continue
            if tag in (None, child.tag) and all(child.has(name, value) for name, value in attributes.items()):
                found.append(child)
            found += child.all(tag, **attributes)
        return found

    def has(self, name, value):
        if name == "class_":
            return value in self.attributes.get("class", "").split()
        return self.attributes.get(name.replace("_", "-")) == value

    def one(self, tag=None, **attributes):
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} elements {tag} {attributes}"
        return found[0]


class Builder(html.parser.HTMLParser):
    VOID = {"meta", "link", "input", "img", "br", "path"}

    def __init__(self):
        super().__init__()
        self.root = self.current = Element("", {}, None)

    def handle_starttag(self, tag, attributes):
        element = Element(tag, {name: value or "" for name, value in attributes}, self.current)
        self.current.children.append(element)
        if tag not in self.VOID:
            self.current = element

    def handle_endtag(self, tag):
        node = self.current
        while node.parent is not None and node.tag != tag:
            node = node.parent
        if node.parent is not None:
            self.current = node.parent

    def handle_data(self, data):
        self.current.children.append(data)


class Browser:
    """For one test, in a folder of its own."""

    def __init__(self, test, folder):
        self.program = find_browser()
        if self.program is None:
            skip(test, "no chromium")
        self.folder = pathlib.Path(folder)

    def run(self, url, *options, size=(1440, 900)):
        command = [self.program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   f"--user-data-dir={self.folder / 'profile'}", f"--window-size={size[0]},{size[1]}", "--virtual-time-budget=8000", *options, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "TMPDIR": str(self.folder)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def dom(self, url, until=None, **options):
        """The page after its scripts have run. A busy browser may give it before its first frame was drawn: then again, at most 5 times, while the body
        has no attribute `until`."""
        for _ in range(5):
            builder = Builder()
            builder.feed(self.run(url, "--dump-dom", **options))
            if until is None or until in builder.root.one("body").attributes:
                break
        return builder.root

    def screenshot(self, url, path, **options):
        self.run(url, f"--screenshot={path}", **options)
