"""`pta watch` on live cameras: changes, gaps, silence, signals; and its configuration, with one line per mistake."""

import json
import signal
from contextlib import suppress

import pytest

pytest.importorskip("av", reason="PyAV is not installed")

from brokers import free_port
from doors import BOX, CLASSES, door, door_camera
from processes import wait_for
from videos import write_video

from pta.run.saved_stream import read_record

REGION = ["--region", f"door={BOX}", "--classes", CLASSES, "--model", "embedded"]


@pytest.fixture
def camera():
    with door_camera() as one:
        yield one


@pytest.fixture
def clip(tmp_path):
    return write_video(tmp_path / "door.mp4", door(1))


def rows(path):
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in path.read_text().splitlines()]
    return []


@pytest.fixture
def watching(commands, tmp_path):
    """Start `pta watch`; then wait for things to happen, as long as it runs."""

    def start(*arguments):
        commands.start("watch", *arguments, folder=tmp_path)

    def until(happened):
        def has_happened():
            if not commands.is_running() and not happened():
                pytest.fail(f"it ended: {commands.stderr.read()}")
            return happened()

        wait_for(has_happened)

    def stop(number=signal.SIGTERM):
        commands.send_signal(number)
        return commands.wait(), commands.stderr.read()

    start.until, start.stop = until, stop
    return start


def test_a_live_camera_tells_changes_and_the_gap_of_a_restart(watching, camera, tmp_path):
    out = tmp_path / "rows.jsonl"
    command = [f"{camera.url}/door", *REGION, "--fps", 20, "--state", "states", "--out", out]
    watching(*command)
    for count, name in enumerate(("ankle boot", "shirt", "ankle boot"), 1):
        camera.show(name)
        watching.until(lambda count=count: len(rows(out)) == count)
    code, said = watching.stop()
    assert code == 128 + signal.SIGTERM
    assert "3 changes" in said
    assert "stopped by SIGTERM" in said
    camera.show("shirt")
    watching(*command)
    watching.until(lambda: len(rows(out)) == 4)
    watching.stop(signal.SIGINT)
    found = rows(out)
    assert [one["label"] for one in found] == ["ankle boot", "shirt", "ankle boot", "shirt"]
    assert [one["number"] for one in found] == [1, 2, 3, 4]
    assert [one["gap"] is None for one in found] == [True, True, True, False]
    assert all(one["time"].endswith("+00:00") for one in found)


def test_a_camera_that_hangs_holds_up_nobody_and_is_silent(watching, camera, tmp_path):
    out = tmp_path / "rows.jsonl"
    (tmp_path / "watch.toml").write_text(f"""
        model = "embedded"
        out = "rows.jsonl"
        classes = ["ankle boot", "shirt"]
        fps = 20
        [camera.hangs]
        source = "{camera.url}/hang"
        silent_after = 0.3
        [camera.first]
        source = "{camera.url}/door"
        region = {{door = "{BOX}"}}
        [camera.second]
        source = "{camera.url}/door"
        region = {{door = "{BOX}"}}
        """)
    watching("--config", "watch.toml", "--log-file", "watch.log")
    for count, name in enumerate(("ankle boot", "shirt", "ankle boot"), 1):
        camera.show(name)
        watching.until(lambda count=count: len(rows(out)) == 2 * count)
    said = [watching.stop()[1]]
    assert {one["camera"] for one in rows(out)} == {"first", "second"}
    assert "hangs: alarm after 0 samples: no sample for" in said[0]
    assert "hangs: 0 pictures, 0 changes" in said[0]


def test_check_tries_each_camera_and_the_broker_and_says_a_line_each(pta, camera, tmp_path):
    (tmp_path / "watch.toml").write_text(f"""
        model = "embedded"
        classes = ["ankle boot", "shirt"]
        mqtt = "mqtt://127.0.0.1:{free_port()}"
        [camera.door]
        source = "{camera.url}/door"
        region = {{door = "{BOX}"}}
        [camera.gone]
        source = "http://127.0.0.1:{free_port()}/"
        """)
    done = pta("watch", "--config", "watch.toml", "--check")
    assert done.returncode == 1
    said = sorted(done.stderr.splitlines())
    assert said[-1] == f"pta: ok: door, {camera.url}/door: door 120×120"
    assert [line.partition(":")[2][:9] for line in said[:2]] == [" failed: "] * 2
    assert len(said) == 3


def test_check_is_fine_without_changing_anything(pta, clip, tmp_path):
    done = pta("watch", clip, *REGION, "--state", "states", "--out", "rows.csv", "--check")
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["door.mp4"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model = ", "is not TOML"),
        ('model = "embedded"', "each camera has a table"),
        ("camera = 3", "each camera has a table"),
        ('clases = "a,b"\n[camera.a]\nsource = "door.mp4"', "no key 'clases'; did you mean 'classes'?"),
        (
            '[camera.a]\nsource = "door.mp4"\nclasses = "a,b"\nconfrim = 3',
            "camera a: there is no key 'confrim'; did",
        ),
        ('[camera.a]\nclasses = "a,b"', "camera a: the key source is missing"),
        ('[camera.a]\nsorce = "door.mp4"', "camera a: there is no key 'sorce'; did you mean 'source'?"),
        ('[camera.a]\nsource = "door.mp4"', "camera a: --classes is required"),
        ('[camera.a]\nsource = "door.mp4"\nclasses = ["a,b", "c"]', "a name has a comma"),
        ('[camera.a]\nsource = "door.mp4"\nclasses = "a,b"\nconfirm = 0', "confirm must be a whole number from 1"),
        ('[camera.a]\nsource = "door.mp4"\nclasses = "a,b"\nenter = "often"', "'--enter'"),
        ('[camera.a]\nsource = "door.mp4"\nclasses = "a,b"\nenter = 2020-01-01', "enter cannot be"),
        ('[camera."a/b"]\nsource = "door.mp4"\nclasses = "a,b"', "a camera has a name of letters"),
        ('[camera.a]\nsource = "nowhere.mp4"\nclasses = "a,b"', "no such file: 'nowhere.mp4'"),
        ('[camera.a]\nsource = "door.mp4"\nclasses = "a,b"\nregion = {a = "1,2,3"}', "a region is NAME=X,Y,W,H"),
        (
            '[camera.a]\nsource = "door.mp4"\nregion = {gate = "0,0,9,9"}\nclasses = {gat = "a,b"}',
            "no region is called 'gat'; did you mean 'gate'?",
        ),
        ('mqtt = "http://x"\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"', "mqtt is an address like"),
        (
            'mqtt_login = "x"\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"',
            "--mqtt-login and --mqtt-certificates belong to --mqtt",
        ),
        ('alarm_url = "ftp://x"\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"', "the alarm URL must be"),
        ('command = []\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"', "the command is a program"),
        ('out = "rows.txt"\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"', "must end in .jsonl or .csv"),
        ('state = "door.mp4"\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"', "takes a folder"),
        ('method = "wta"\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"', "did you mean 'wpta'"),
        ('method = "stata"\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"', "does not answer picture by picture"),
        ('model = "nothing:x"\n[camera.a]\nsource = "door.mp4"\nclasses = "a,b"', "nothing"),
    ],
)
def test_a_mistake_in_a_configuration_is_one_line_that_names_the_key(pta, clip, tmp_path, text, problem):
    (tmp_path / "watch.toml").write_text(text if "model" in text else f'model = "embedded"\n{text}')
    done = pta("watch", "--config", "watch.toml", "--check")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert problem in line


def test_a_configuration_with_a_password_is_for_its_owner_alone(pta, tmp_path):
    path = tmp_path / "watch.toml"
    path.write_text('model = "embedded"\n[camera.a]\nsource = "rtsp://me:secret@127.0.0.1:1/"\nclasses = "a,b"\n')
    path.chmod(0o644)
    done = pta("watch", "--config", path, "--check")
    assert done.returncode == 2
    assert "holds a password, so only its owner may read it: chmod 600" in done.stderr
    path.chmod(0o600)
    done = pta("watch", "--config", path, "--check")
    assert done.returncode == 1
    assert "secret" not in done.stderr


def test_a_password_file_that_others_can_read_is_refused(pta, clip, tmp_path):
    (tmp_path / "login").write_text("me:secret\n")
    (tmp_path / "login").chmod(0o640)
    done = pta("watch", clip, *REGION, "--mqtt", "mqtt://127.0.0.1", "--mqtt-login", "login")
    assert done.returncode == 2
    assert "chmod 600 login" in done.stderr
    assert "secret" not in done.stderr


def test_options_beside_a_configuration_are_refused(pta):
    done = pta("watch", "--config", "watch.toml", "--confirm", 2)
    assert done.returncode == 2
    assert "--confirm cannot be used with --config" in done.stderr


def test_a_state_that_cannot_be_its_own_is_refused(pta, clip, tmp_path):
    (tmp_path / "states").mkdir()
    (tmp_path / "states" / "camera@door.safetensors").write_bytes(b"no state")
    done = pta("watch", clip, *REGION, "--state", "states")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_region_outside_the_picture_is_one_line(pta, clip):
    done = pta("watch", clip, "--region", "door=300,100,100,100", *REGION[2:])
    assert done.returncode == 2
    assert "not inside the frame, 320×180" in done.stderr.splitlines()[-1]


def test_a_broker_that_is_not_there_loses_nothing(pta, clip, tmp_path, monkeypatch):
    monkeypatch.setattr("pta.run.watch.mqtt._STEP_SECONDS", 0.2)
    command = ["watch", clip, *REGION, "--state", "states", "--out", "rows.csv"]
    done = pta(*command, "--mqtt", f"mqtt://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "mqtt: 0 delivered, 2 not delivered, 0 given up; the same command tries again" in done.stderr
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3
    assert pta(*command).returncode == 0
    kept = read_record(tmp_path / "states" / "camera@door.safetensors").watch["waiting"]
    assert [one["label"] for one in kept["mqtt"]] == CLASSES.split(",")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3
