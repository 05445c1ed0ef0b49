"""The documentation as a site, in a real browser."""

import subprocess
import sys
from pathlib import Path

import pytest
from pages import FAULTS, PHONE, looking, needs_browser
from processes import PATIENCE

ROOT = Path(__file__).parents[1]


@pytest.mark.extensive
@needs_browser
def test_a_phone_reads_every_page_and_wide_tables_scroll_in_a_shaded_box(tmp_path):
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    subprocess.run(build, cwd=ROOT, check=True, timeout=PATIENCE)
    pages = sorted((tmp_path / "site").rglob("index.html"))
    assert len(pages) > 40
    with looking(PHONE) as look:
        assert {page.parent.name: found for page in pages if (found := look(page.as_uri(), FAULTS))} == {}
