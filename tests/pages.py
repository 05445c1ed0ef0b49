"""A page looked at: whether its tags are balanced, and what a real browser makes of it."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

from processes import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_VOID = {"meta", "link", "img", "br"}
_ALONE = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")
_QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


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


def in_a_browser(file, profile, *options):
    """The page as it is once a browser has opened the file and run its scripts."""
    done = subprocess.run(
        [CHROMIUM, *_ALONE, f"--user-data-dir={profile}", *_QUIET, *options, "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout
