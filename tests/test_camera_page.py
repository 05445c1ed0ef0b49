"""The page of `pta watch` leads from a video to a topic: its commands run as printed, with a real broker."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("av", reason="PyAV is not installed")

from brokers import broker, needs_broker
from snippets import ROOT, commands, python_blocks

PAGE = (ROOT / "docs" / "camera.md").read_text(encoding="utf-8")
(MAKE_VIDEO,) = [one.text for one in python_blocks() if one.page == "camera.md"]
(CONFIGURATION,) = re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the video and the configuration of the page, and a broker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_MODEL", "embedded")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    exec(compile(MAKE_VIDEO, "camera.md", "exec"), {})
    return tmp_path


@needs_broker
@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="there is no mosquitto_sub (mosquitto-clients)")
def test_the_page_leads_from_a_video_to_a_topic(place, pta):
    with broker(place) as one:
        local = f"localhost:{one.port}"
        Path("watch.toml").write_text(CONFIGURATION.replace("mqtt://localhost", f"mqtt://{local}"))
        run = {}
        for command in (one.text for one in commands() if one.page == "camera.md"):
            arguments = command.replace("mqtt://localhost", f"mqtt://{local}")
            run[command] = done = subprocess.run(["bash", "-c", arguments], capture_output=True, text=True)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            if "--mqtt" in command:
                (listen,) = re.findall(r"^mosquitto_sub .*", PAGE, flags=re.MULTILINE)
                listen = listen.replace("-h localhost", f"-h localhost -p {one.port}")
                kept = subprocess.run(["bash", "-c", listen], capture_output=True, text=True, check=True).stdout
        first, broken_down, check, several = run.values()
    rows = [json.loads(line) for line in first.stdout.splitlines()]
    assert [(row["time"], row["label"]) for row in rows] == [
        (f"{2 * number}.400", ("ankle boot", "shirt")[number % 2]) for number in range(6)
    ]
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert json.loads(shown) == rows[1] | {"probability": json.loads(shown)["probability"]}
    topics = dict(line.split(" ", 1) for line in kept.splitlines())
    assert topics["pta/camera/status"] == "online"
    assert json.loads(topics["pta/camera/door/state"])["number"] == 6
    assert len(Path("changes.csv").read_text().splitlines()) == 7
    assert len(check.stderr.splitlines()) == 3
    assert "6 changes" in several.stderr
    assert broken_down.stdout == ""
    assert sorted(path.name for path in Path("states").iterdir()) == [
        f"{name}.safetensors" for name in ("camera@door", "door@door", "hall@left", "hall@right")
    ]


def test_the_unit_is_one_that_systemd_takes(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze (Debian: apt-get install systemd)")
    unit = tmp_path / "pta-watch.service"
    unit.write_text((ROOT / "deploy" / "pta-watch.service").read_text().replace("/opt/pta/bin/pta", "/bin/true"))
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
