"""A page looked at: whether its tags are balanced, and what a real browser makes of it."""

import re
import shutil
from contextlib import contextmanager
from html.parser import HTMLParser
from importlib.util import find_spec

import pytest
from processes import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None, reason="no chromium and playwright on this machine"
)

_VOID = {"meta", "link", "img", "br", "wbr"}


class Balance(HTMLParser):
    """Reads a page whose tags are balanced, and fails at others."""

    def __init__(self, page):
        super().__init__()
        self.open = []  # the elements that are not closed yet, outermost first
        self.closed_at_once = []  # each element that was, with those it stood in
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.closed_at_once.append((tag, tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def assert_loads_nothing(page):
    """No address leads out of the page, and the browser is told to refuse one that would."""
    without_names = page.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
    assert not re.search(r"https?:|@import", without_names)
    addresses = re.findall(r"""(?:src|href|srcset|data|action)\s*=\s*["']([^"']*)""", page)
    assert addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert "default-src 'none'" in page


PHONE = 360  # pixels

# What cannot be read. Headings must not be broken inside a word. The last cell of every row must be inside the page, or
# come into sight where the table scrolls in a box of its own, whose background shows that it goes on.
FAULTS = r"""() => {
  const found = [], root = document.documentElement, shown = (one) => one.getClientRects().length > 0;
  const may = (box) => ["auto", "scroll"].includes(getComputedStyle(box).overflowX);
  const scrolls = (box) => may(box) && box.scrollWidth > box.clientWidth;
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} wide`);
  for (const head of [...document.querySelectorAll("th")].filter(shown)) {
    const texts = document.createTreeWalker(head, NodeFilter.SHOW_TEXT);
    for (let text; (text = texts.nextNode()); )
      for (const word of text.data.matchAll(/[\p{L}\p{N}]+/gu)) {
        const range = document.createRange();
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((part) => Math.round(part.top)));
        if (lines.size > 1) found.push(`${word[0]} is broken`);
      }
  }
  for (const table of [...document.querySelectorAll("table")].filter(shown)) {
    let box = table;
    while (box !== root && !scrolls(box)) box = box.parentElement;
    if (scrolls(box) && getComputedStyle(box).backgroundImage === "none")
      found.push(`nothing shows that this table goes on: ${table.rows[0].innerText}`);
    box.scrollLeft = 100000;
    const right = Math.min(box.getBoundingClientRect().right, root.clientWidth);
    for (const row of [...table.rows].filter(shown)) {
      const cells = [...row.cells].filter(shown), last = cells.at(-1).getBoundingClientRect();
      const sticks = cells.length > 1 && getComputedStyle(cells[0]).position === "sticky";
      const left = sticks ? cells[0].getBoundingClientRect().right : box.getBoundingClientRect().left;
      if (cells.at(-1).colSpan === 1 && (last.right > right + 1 || last.left < left - 1))
        found.push(`the end of this row is cut off: ${row.innerText}`);
    }
  }
  return found;
}"""


@contextmanager
def browser():
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def looking(width):
    """A function that opens an address in a page of this width, and gives what a script there returns."""
    with browser() as opened:
        page = opened.new_page(viewport={"width": width, "height": 800})
        page.set_default_timeout(1000 * PATIENCE)

        def look(address, script):
            page.goto(address)
            return page.evaluate(script)

        yield look
