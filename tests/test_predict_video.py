"""`pta predict` and `pta extract` of videos and cameras: rows, regions, states, resuming, where addresses may be."""

import csv
import io
import json
import re
import signal
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("av", reason="PyAV is not installed")

from effort import repeated
from http_camera import http_camera
from videos import command_line, fashion_frames, grey, write_video

import pta as package
from pta.data import open_samples
from pta.data.features import load_features
from pta.data.open import open_places
from pta.door.files import load_tensors
from pta.errors import PtaError

CLASSES = ("ankle boot", "shirt", "bag")
FIXED = ("--classes", ",".join(CLASSES), "--model", "embedded")
LEFT, RIGHT = ("--region", "left=20,20,112,112"), ("--region", "right=180,20,112,112")


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Ten seconds; every half a second a boot on the left and a shirt on the right change places."""
    return write_video(tmp_path_factory.mktemp("film") / "film.mp4", fashion_frames(CLASSES, 100))


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_of_a_video_have_its_times(pta, tmp_path, film):
    out = tmp_path / "rows.csv"
    done = pta("predict", film, *FIXED, *LEFT, "--every", "0.5", "--out", out)
    assert done.returncode == 0, done.stderr
    rows = rows_of(out)
    assert [float(row["time"]) for row in rows] == [number / 2 for number in range(20)]
    assert [row["label"] for row in rows] == ["ankle boot", "shirt"] * 10
    assert rows[3]["path"] == f"{film}@1.500#left"
    assert {row["region"] for row in rows} == {"left"}
    assert "gap" not in rows[0]


def test_flags_stay_flags_beside_times(pta, film):
    done = pta("predict", film, *FIXED, "--every", "1", "--reject-below", "0.5")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {0.0, 1.0} <= {row["time"] for row in rows}
    assert all(type(row["rejected"]) is bool and type(row["time"]) is float for row in rows)


def test_each_region_is_a_stream_of_its_own(pta, tmp_path, film):
    found = {}
    for name, regions in (("left", LEFT), ("right", RIGHT), ("both", (*LEFT, *RIGHT))):
        out = tmp_path / f"{name}.jsonl"
        done = pta("predict", film, *FIXED, *regions, "--fps", 5, "--out", out)
        assert done.returncode == 0, done.stderr
        found[name] = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["region"] for row in found["both"][:4]] == ["left", "right", "left", "right"]
    for region in ("left", "right"):
        alone = {row["path"]: row for row in found[region]}
        together = {row["path"]: row for row in found["both"] if row["region"] == region}
        assert alone.keys() == together.keys()
        assert len(alone) == 50
        for path, row in alone.items():
            assert row["label"] == together[path]["label"]
            assert row["probability"] == pytest.approx(together[path]["probability"], abs=1e-4)


def test_numbers_of_the_monitor_name_their_regions(pta, tmp_path, film):
    done = pta("predict", film, *FIXED, *LEFT, *RIGHT, "--monitor", tmp_path / "m.jsonl", "--out", tmp_path / "o.csv")
    assert done.returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert {line["region"] for line in lines} == {"left", "right"}


def test_a_state_is_of_one_region(pta, film):
    done = pta("predict", film, *FIXED, *LEFT, *RIGHT, "--state", "s.safetensors", "--out", "o.csv")
    assert done.returncode == 2
    assert "give one --region with it" in done.stderr


@pytest.mark.parametrize(("ending", "codec"), [("mp4", "libx264"), ("ts", "libx264"), ("mkv", "libvpx")])
def test_an_interrupted_video_is_resumed_by_its_time_stamps(pta, tmp_path, ending, codec):
    film = write_video(tmp_path / f"film#2@3.{ending}", fashion_frames(CLASSES, 100), codec=codec)
    how = (*FIXED, *LEFT, "--every", "0.2", "--batch", 8, "--resume")
    for number, pieces in enumerate([(None,), ("2.4", "6.1", None)]):
        for end in pieces:
            given = () if end is None else ("--end", end)
            files = ("--state", tmp_path / f"{number}.safetensors", "--out", tmp_path / f"{number}.csv")
            done = pta("predict", film, *how, *files, *given)
            assert done.returncode == 0, done.stderr
    whole, pieces = (rows_of(tmp_path / f"{number}.csv") for number in range(2))
    assert [row["path"] for row in pieces] == [row["path"] for row in whole]
    assert [row["label"] for row in pieces] == [row["label"] for row in whole]
    assert len(whole) == 50


def test_a_video_in_which_the_last_frame_is_not_there_is_not_resumed(pta, tmp_path, film):
    place = tmp_path / "film.mp4"
    place.write_bytes(film.read_bytes())
    how = (*FIXED, "--resume", "--state", tmp_path / "s.safetensors", "--out", tmp_path / "o.csv")
    assert pta("predict", place, *how, "--every", "0.7", "--end", "3").returncode == 0
    write_video(place, map(grey, range(60)), times=[33 * n for n in range(60)])
    done = pta("predict", place, *how, "--every", "0.7")
    assert (done.returncode, "now there is no such frame" in done.stderr or "no frame is" in done.stderr) == (2, True)


def test_a_killed_run_of_a_video_loses_no_row_and_writes_none_twice(commands, tmp_path, film):
    how = ["predict", film, *FIXED, *LEFT, "--every", "0.1", "--batch", "4", "--save-every", "0", "--resume"]
    how += ["--state", "s.safetensors", "--out", "rows.csv"]
    for kill in range(repeated(20)):
        commands.start(*how, folder=tmp_path)
        target = 5 * (kill % 19 + 1)
        while commands.is_running(0.001) and len(lines(tmp_path / "rows.csv")) < target:
            pass
        code = commands.kill()
        assert code in (0, -signal.SIGKILL), commands.stderr.read()
    commands.start(*how, folder=tmp_path)
    assert commands.wait() == 0
    times = [float(row["time"]) for row in rows_of(tmp_path / "rows.csv")]
    assert times == [number / 10 for number in range(100)]
    _, about = load_tensors(tmp_path / "s.safetensors", "state")
    assert "100" in json.dumps(about)


def lines(path):
    return path.read_bytes().splitlines() if path.exists() else []


def test_a_camera_is_predicted_until_it_is_stopped_and_says_what_was_missed(commands, tmp_path):
    with http_camera() as server:
        place = f"{server.url}/mjpeg"
        for run in range(2):
            more = ["--append"] if run else []
            how = [*FIXED, "--every", "0.1", "--state", "s.safetensors", "--out", "rows.jsonl", *more]
            before = len(lines(tmp_path / "rows.jsonl"))
            commands.start("predict", place, *how, folder=tmp_path)
            while commands.is_running(0.01) and len(lines(tmp_path / "rows.jsonl")) < before + 5:
                pass
            commands.send_signal(signal.SIGTERM)
            assert commands.wait() == 128 + signal.SIGTERM, commands.stderr.read()
    rows = [json.loads(line) for line in lines(tmp_path / "rows.jsonl")]
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    gaps = [number for number, row in enumerate(rows) if row["gap"] is not None]
    assert len(gaps) == 1
    assert rows[gaps[0]]["gap"] == pytest.approx(rows[gaps[0]]["time"] - rows[gaps[0] - 1]["time"], abs=0.01)


def test_what_was_broken_is_said_when_a_camera_is_stopped(commands, tmp_path):
    with http_camera() as server:
        how = [*FIXED, "--every", "0.05", "--out", "rows.csv"]
        commands.start("predict", f"{server.url}/broken", *how, folder=tmp_path)
        while commands.is_running(0.01) and len(lines(tmp_path / "rows.csv")) < 6:
            pass
        commands.send_signal(signal.SIGINT)
        assert commands.wait() == 128 + signal.SIGINT
        assert re.search(r"[1-9]\d* broken frames were skipped", commands.stderr.read())


def test_a_camera_that_stops_is_noticed(commands, tmp_path):
    with http_camera() as server:
        how = [*FIXED, "--every", "0.05", "--silent-after", "1", "--out", "rows.csv"]
        commands.start("predict", f"{server.url}/stops", *how, folder=tmp_path)
        said = ""
        while "alarm silent" not in said and commands.is_running():
            said = commands.stderr.readline()
        commands.send_signal(signal.SIGTERM)
        commands.wait()
    assert "alarm silent" in said


def test_no_row_state_message_or_record_holds_the_login(commands, tmp_path):
    login = tmp_path / "login"
    login.write_text("me:secret\n")
    login.chmod(0o600)
    with http_camera() as server:
        how = [*FIXED, "--every", "0.1", "--login", login, "--state", "s.safetensors", "--out", "rows.jsonl"]
        how += ["--log-file", "log.txt", "--verbose", "--monitor", "m.jsonl"]
        commands.start("predict", f"{server.url}/digest?token=hidden", *how, folder=tmp_path)
        while commands.is_running(0.01) and len(lines(tmp_path / "rows.jsonl")) < 3:
            pass
        listed = " ".join(command_line(place.name) for place in Path("/proc").glob("[0-9]*"))
        commands.send_signal(signal.SIGTERM)
        commands.wait()
        said = commands.stderr.read()
        server.stopping.set()
    assert len(lines(tmp_path / "rows.jsonl")) >= 3
    for path in ("rows.jsonl", "s.safetensors", "log.txt", "m.jsonl"):
        content = (tmp_path / path).read_bytes()
        assert b"secret" not in content, path
        assert b"bWU6c2VjcmV0" not in content, path
        assert path == "log.txt" or b"hidden" not in content, path
    assert "secret" not in said
    assert "video.process" in listed
    assert "secret" not in listed


def test_mistakes_with_cameras_are_one_line(pta, tmp_path, film):
    with http_camera() as server:
        login = tmp_path / "login"
        login.write_text("me:wrong")
        login.chmod(0o600)
        given = {
            (f"{server.url}/none", "--every", "1"): "answers 404",
            (f"{server.url}/basic", "--every", "1"): "asks for a user",
            (f"{server.url}/basic", "--every", "1", "--login", login): "refuses the user or the password",
            (
                f"{server.url}/mjpeg",
                "--every",
                "1",
                "--resume",
                "--state",
                "s.safetensors",
            ): "--resume takes the frames",
            (f"{server.url}/mjpeg",): "of a camera, say how often: --every 2s",
            (film, "--region", "gate=300,0,100,100"): "not inside the frame, 320×240",
            (film, "--start", "60"): "no frame is in that time",
            (film, film, f"{server.url}/mjpeg", "--every", "1"): "one camera, or files",
            (film, "--max-pixels", "1000"): "320×240 pixels are too many",
        }
        for arguments, said in given.items():
            done = pta("predict", *arguments, *FIXED, "--out", "rows.csv", "--replace")
            assert done.returncode == 2, (arguments, done.stderr)
            assert said in done.stderr.splitlines()[-1]


# -- feature files -----------------------------------------------------------------------------------------------------


def test_frames_of_a_video_become_a_feature_file_that_is_resumed(pta, tmp_path, film):
    out = tmp_path / "film.safetensors"
    call = ("extract", film, *FIXED, *LEFT, "--every", "0.5", "--out", out)
    assert pta(*call).returncode == 0
    file = load_features(out)
    assert len(file.samples) == 20
    done = pta(*call)
    assert "all encoded before" in done.stdout
    rows = tmp_path / "rows.csv"
    assert pta("predict", film, *FIXED, *LEFT, "--every", "0.5", "--method", "clip", "--out", rows).returncode == 0
    clip = [row["label"] for row in rows_of(rows)]
    labels = file.classifier.logits(file.samples.features).argmax(1)
    assert [file.classifier.class_names[int(n)] for n in labels] == clip


def test_a_camera_has_no_feature_file(pta):
    with http_camera() as server:
        done = pta("extract", f"{server.url}/mjpeg", *FIXED, "--every", "1", "--out", "f.safetensors")
    assert done.returncode == 2
    assert "has no end" in done.stderr


# -- where addresses may be --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["rtsp://127.0.0.1:{port}/s", "http://127.0.0.1:{port}/mjpeg", "camera:0", "{film}"])
def test_addresses_in_lists_pipes_and_archives_are_not_opened(pta, tmp_path, film, place):
    with http_camera() as server:
        given = place.format(port=server.server_port, film=film)
        listed = tmp_path / "list.csv"
        listed.write_text(f"path,label\n{given},bag\n")
        with tarfile.open(tmp_path / "shard.tar", "w") as tar:
            for name, content in (("1.jpg", given.encode()), ("1.cls", b"0"), ("2.mp4", film.read_bytes())):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        calls = [
            ("predict", listed, *FIXED),
            ("extract", listed, *FIXED, "--out", "f.safetensors"),
            ("extract", tmp_path / "shard.tar", *FIXED, "--out", "f.safetensors"),
        ]
        for call in calls:
            done = pta(*call)
            assert done.returncode in (1, 2), (call, done.stdout)
            assert not done.stdout
        done = pta("predict", "-", *FIXED, "--on-error", "skip", "--give-up-unread", stdin=f"{given}\n".encode())
        assert '"label": "' not in done.stdout
        assert not server.asked


def test_a_service_opens_no_address_and_no_video(film):
    classifier = package.Classifier("embedded", list(CLASSES), cache=None)
    with http_camera() as server:
        for given in (film.read_bytes(), f"{server.url}/mjpeg".encode(), b"rtsp://127.0.0.1/"):
            with pytest.raises(PtaError, match="not an image that pta reads"):
                classifier(given)  # as the pictures of requests are read: bytes alone
        assert not server.asked


def test_only_who_asks_for_videos_gets_them(film):
    for opener in (lambda: open_samples(str(film)), lambda: open_places([str(film)])):
        with pytest.raises(PtaError, match=r"pta\.frames"):
            opener()
