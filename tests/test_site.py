"""The documentation as a site, in a real browser."""

import subprocess
import sys
from pathlib import Path

import pytest
from pages import CHROMIUM, phone
from processes import PATIENCE

ROOT = Path(__file__).parents[1]


@pytest.mark.extensive
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine to open the site with")
def test_a_phone_reads_every_page_and_wide_tables_scroll_in_a_shaded_box(tmp_path):
    for package in ("mkdocs", "playwright"):
        pytest.importorskip(package)
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    subprocess.run(build, cwd=ROOT, check=True, timeout=PATIENCE)
    pages = sorted((tmp_path / "site").rglob("index.html"))
    assert len(pages) > 40
    with phone() as faults:
        assert {page.parent.name: found for page in pages if (found := faults(page.as_uri()))} == {}
