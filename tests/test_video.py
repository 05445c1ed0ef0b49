"""Video files: which frames are taken and when, what is broken, and what is hostile."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

av = pytest.importorskip("av", reason="PyAV is not installed")

from effort import repeated
from processes import wait_for
from videos import SIZE, children_of, command_line, grey, is_running, number_of, write_video

import pta
from pta.core.limits import Limits
from pta.door.video import Camera, Login, Region, Timing, VideoAddress, require_private, video_frames
from pta.door.video.timing import Picker, seconds
from pta.errors import InvalidParameter, MachineFailure, PtaError, UnreadableFile


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Three seconds, ten frames each, of which the brightness is the number."""
    return write_video(tmp_path_factory.mktemp("clip") / "clip.mp4", map(grey, range(30)))


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """More frames than wait in a pipe."""
    return write_video(tmp_path_factory.mktemp("long") / "long.mkv", map(grey, range(300)))


def taken(path, timing=None, regions=(), **how):
    camera = Camera(VideoAddress.parse(str(path)), "", timing, regions, **how)
    return [frame for moment in video_frames(camera) for frame in moment], camera


def numbers(path, timing=None):
    return [number_of(frame.image) for frame in taken(path, timing)[0]]


# -- which frames ------------------------------------------------------------------------------------------------------


def test_every_frame_of_a_file_comes_once_and_in_order(clip):
    found, camera = taken(clip)
    assert [number_of(frame.image) for frame in found] == list(range(30))
    assert [round(frame.time, 6) for frame in found] == [number / 10 for number in range(30)]
    assert camera.counts.moments == 30
    assert camera.is_over


@pytest.mark.parametrize("ending", ["mp4", "mkv", "ts", "avi", "mov", "webm", "mpg", "flv", "m4v"])
def test_containers_of_the_usual_kinds_are_read_at_the_same_times(tmp_path, ending):
    codec = {"avi": "mpeg4", "webm": "libvpx", "mpg": "mpeg2video"}.get(ending, "libx264")
    path = write_video(tmp_path / f"clip.{ending}", map(grey, range(50)), codec=codec, rate=25)
    found, _ = taken(path, Timing(every=0.4))
    assert [frame.time for frame in found][:5] == pytest.approx([0.0, 0.4, 0.8, 1.2, 1.6], abs=0.05)
    assert [number_of(frame.image) for frame in found][:5] == pytest.approx([0, 10, 20, 0, 10], abs=1)


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        (Timing(every=0.5), [0, 5, 10, 15, 20, 25]),
        (Timing.of(fps=2.5), [0, 4, 8, 12, 16, 20, 24, 28]),
        (Timing(every=0.25), [0, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28]),
        (Timing.of("1s", start="0.7"), [7, 17, 27]),
        (Timing.of(start="0:02.5"), [25, 26, 27, 28, 29]),
        (Timing.of(end="300ms"), [0, 1, 2]),
        (Timing.of("0.2s", start=1, end=2), [10, 12, 14, 16, 18]),
    ],
)
def test_frames_are_taken_by_the_time_stamps_of_the_video(clip, timing, expected):
    assert numbers(clip, timing) == expected


@pytest.mark.parametrize(
    ("ending", "codec", "options"),
    [
        ("mov", "mpeg4", {"g": "12", "bf": "2"}),
        ("mp4", "libx265", {"x265-params": "keyint=12:open-gop=1:log-level=none"}),
        ("mkv", "libx264", {"x264-params": "keyint=12:open-gop=1:bframes=3"}),
    ],
)
def test_a_file_that_is_entered_anywhere_gives_all_frames_from_there(tmp_path, ending, codec, options):
    path = write_video(tmp_path / f"clip.{ending}", map(grey, range(30)), codec=codec, options=options)
    whole = [frame.time for frame in taken(path)[0]]
    for number in range(1, 30, 4):
        found, camera = taken(path, first=whole[number])
        assert [frame.time for frame in found] == whole[number:]
        assert camera.counts.broken == 0


def test_a_changing_rate_is_followed_by_its_time_stamps(tmp_path):
    times = [0, 40, 80, 1000, 1500, 1520, 4000, 4040]
    path = write_video(tmp_path / "changing.mkv", map(grey, range(8)), times=times)
    assert [round(frame.time, 3) for frame in taken(path)[0]] == [time / 1000 for time in times]
    assert numbers(path, Timing(every=1.0)) == [0, 3, 6]


@given(
    st.lists(st.floats(0, 100, allow_nan=False), max_size=60),
    st.floats(0.01, 10),
    st.floats(0, 50),
    st.floats(0.1, 50),
    st.integers(0, 60),
)
def test_a_picker_that_begins_later_takes_the_same_frames(times, every, start, length, skipped):
    times, timing = sorted(times), Timing(every, start, start + length)
    picker = Picker(timing)
    whole = [time for time in times if picker.takes(time)]
    assert all(start - 1e-5 <= time < timing.end for time in whole)
    steps = [int((time - start) / every + 1e-6) for time in whole]
    assert steps == sorted(set(steps))  # one frame for each step
    if skipped < len(
        whole
    ):  # as decoding does after a seek: from a frame of the stream at or before the last one taken
        again = Picker(timing)
        after = [time for time in times if time >= whole[skipped] and again.takes(time)]
        assert after == whole[skipped:]


def test_time_stamps_that_jump_back_lose_nothing_and_times_go_on(tmp_path):
    first, second = (write_video(tmp_path / f"{n}.ts", map(grey, range(12)), codec="mpeg2video") for n in "ab")
    joined = tmp_path / "joined.ts"
    joined.write_bytes(first.read_bytes() + second.read_bytes())
    found, camera = taken(joined)
    assert [number_of(frame.image) for frame in found] == [*range(12), *range(12)]
    assert np.diff([frame.time for frame in found]).min() > 0
    assert camera.counts.jumps == 1
    assert len({frame.key for frame in found}) == 24


def test_a_video_of_one_frame_has_one(tmp_path):
    assert numbers(write_video(tmp_path / "one.mp4", [grey(3)])) == [3]


def test_a_rotated_video_is_seen_upright(tmp_path):
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:24] = 250
    path = write_video(tmp_path / "turned.mp4", [picture] * 3)
    content = path.read_bytes()
    upright = b"".join(value.to_bytes(4, "big") for value in (0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000))
    quarter = b"".join(
        value.to_bytes(4, "big") for value in (0, 0x10000, 0, 0xFFFF0000, 0, 0, 0, 0, 0x40000000)
    )  # shown a quarter turn to the right
    at = content.rindex(upright)  # of the track
    path.write_bytes(content[:at] + quarter + content[at + len(upright) :])
    image = taken(path)[0][0].image
    assert image.shape == (64, 48, 3)
    assert image[:, 40].mean() > 200 > 50 > image[:, 8].mean()


# -- regions -----------------------------------------------------------------------------------------------------------


def test_regions_are_cut_in_pixels_and_per_cent_and_come_together(clip):
    regions = [Region.parse("a=0,0,10,20"), Region.parse("b c=50%,50%,50%,25%")]
    found, _ = taken(clip, Timing(every=1), regions)
    assert [(frame.region, frame.image.shape[:2]) for frame in found] == [("a", (20, 10)), ("b c", (12, 32))] * 3
    assert found[1].key == f"{clip}@0.000#b c"


@pytest.mark.parametrize("box", ["60,0,10,10", "0,40,10,10", "90%,0,11%,10", "0,0,65,48", "0,0,0,10", "63.9,0,1,1"])
def test_a_region_outside_the_frame_is_refused(clip, box):
    with pytest.raises(PtaError, match="region"):
        taken(clip, regions=[Region.parse(f"gate={box}")])


@pytest.mark.parametrize(
    "text", ["gate", "gate=1,2,3", "=1,2,3,4", "a/b=1,2,3,4", "gate=-1,0,5,5", "gate=1,2,3,4,5", "g#=1,1,1,1"]
)
def test_what_is_no_region_is_refused(text):
    with pytest.raises(InvalidParameter, match="region"):
        Region.parse(text)


def test_an_empty_region_is_called_empty(clip):
    with pytest.raises(PtaError, match="the region gate=1,1,0,10 is empty"):
        taken(clip, regions=[Region.parse("gate=1,1,0,10")])


def test_two_regions_of_one_name_are_refused(clip):
    with pytest.raises(InvalidParameter, match="two regions are called gate"):
        taken(clip, regions=[Region.parse("gate=0,0,1,1"), Region.parse("Gate=0,0,2,2")])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"every": "2s", "fps": 2.0}, "leave one of them out"),
        ({"every": "soon"}, "is a time such as"),
        ({"every": "0"}, "every 0.001 to"),
        ({"fps": 0.0}, "frames per second"),
        ({"start": "5", "end": "4"}, "must be after the start"),
    ],
)
def test_times_that_make_no_sense_are_refused(how, said):
    with pytest.raises(InvalidParameter, match=said):
        Timing.of(**how)


def test_times_are_written_in_several_ways():
    assert [seconds(text, "") for text in ("2", "2s", "250ms", "1.5m", "1h", "1:30", "1:00:01.5")] == [
        *(2, 2, 0.25, 90, 3600, 90, 3601.5)
    ]


# -- broken ------------------------------------------------------------------------------------------------------------


def test_broken_frames_are_skipped_and_counted(tmp_path):
    path = write_video(tmp_path / "clip.avi", map(grey, range(40)), codec="mjpeg")
    content = bytearray(path.read_bytes())
    starts = [at for at in range(len(content)) if content.startswith(b"\xff\xd8\xff", at)]
    for number in (7, 8, 21):
        content[starts[number] : starts[number + 1] - 8] = bytes(starts[number + 1] - 8 - starts[number])
    path.write_bytes(content)
    found, camera = taken(path)
    assert [number_of(frame.image) for frame in found] == [n % 30 for n in range(40) if n not in (7, 8, 21)]
    assert camera.counts.broken == 3


def test_damage_that_the_decoder_notices_is_counted_and_not_given_out(tmp_path):
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (48, 64, 3), dtype=np.uint8) for _ in range(30)]
    path = write_video(tmp_path / "clip.ts", pictures, options={"g": "10"})
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 3000] = rng.bytes(3000)
    path.write_bytes(content)
    found, camera = taken(path)
    assert camera.counts.broken
    assert 10 <= len(found) < 30


def test_a_truncated_video_gives_what_is_there(tmp_path):
    path = write_video(tmp_path / "clip.mkv", map(grey, range(30)), codec="mjpeg")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = numbers(path)
    assert found == list(range(len(found)))
    assert 10 <= len(found) < 20


def refusal(path, timing=None, **how):
    with pytest.raises(PtaError) as caught:
        taken(path, timing, **how)
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_is_no_video_is_one_line(tmp_path, clip):
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(clip.read_bytes()[:600])
    empty, text = tmp_path / "empty.mp4", tmp_path / "text.mp4"
    empty.write_bytes(b"")
    text.write_text("hello")
    for path in (cut, empty, text):
        assert re_in("is not a video that pta reads", refusal(path))
    sound = tmp_path / "sound.mp4"
    with av.open(str(sound), "w") as out:
        stream = out.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), "fltp", "mono")
        frame.sample_rate = 8000
        out.mux([*stream.encode(frame), *stream.encode()])
    assert re_in("only sound", refusal(sound))
    assert re_in("no frame is in that time", refusal(clip, Timing(start=100)))
    with pytest.raises(UnreadableFile, match="no such file"):
        VideoAddress.parse(str(tmp_path / "none.mp4"))
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    with pytest.raises(UnreadableFile, match="not a regular file"):
        VideoAddress.parse(str(pipe))


def re_in(text, error):
    return text in str(error)


def test_a_video_without_frames_says_so(tmp_path):
    path = tmp_path / "none.mkv"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuvj420p"
        out.start_encoding()
    assert re_in("no frame", refusal(path)) or re_in("not a video", refusal(path))


# -- hostile -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["evil.mp4", "evil.m3u8"])
def test_files_that_name_other_files_are_refused_whatever_they_are_called(tmp_path, clip, name):
    secret = tmp_path / "secret.mp4"
    shutil.copy(clip, secret)
    segment = write_video(tmp_path / "segment.ts", map(grey, range(10)))
    contents = {
        "concat": f"ffconcat version 1.0\nfile {secret.name}\n",
        "concat, absolute": f"ffconcat version 1.0\nfile '{secret}'\n",
        "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXT-X-VERSION:3\n#EXTINF:3,\n{segment.name}\n#EXT-X-ENDLIST\n",
        "hls, absolute": f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\nfile://{segment}\n#EXT-X-ENDLIST\n",
        "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT3S"><Period><AdaptationSet mimeType="video/mp4"><Representation id="1" '
        f'bandwidth="1000"><BaseURL>{secret.name}</BaseURL></Representation></AdaptationSet></Period></MPD>',
        "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"
        "a=rtpmap:96 H264/90000\n",
        "vobsub": "# VobSub index file, v7\nsize: 64x48\n",
        "playlist of pictures": "https://127.0.0.1:1/a.jpg\n",
    }
    for what, text in contents.items():
        path = tmp_path / name
        path.write_text(text)
        assert re_in("is not a video that pta reads", refusal(path)), what


def test_references_of_a_quicktime_file_to_others_are_not_followed(tmp_path, clip):
    content = clip.read_bytes()
    own = b"\0\0\0\x0curl \0\0\0\x01"
    assert own in content
    for said in (str(clip).encode(), clip.name.encode()):
        other = b"url \0\0\0\0" + b"file://" + said + b"\0"
        path = tmp_path / "evil.mov"
        path.write_bytes(_with_box(content, own, len(other) + 4, other))
        found = refusal(path)
        assert isinstance(found, PtaError)


def _with_box(content, own, size, other):
    """A file with another data reference, the sizes of the boxes around it, and no pictures of its own."""
    box = size.to_bytes(4, "big") + other
    at, grown = content.index(own), len(box) - len(own)
    changed = bytearray(content[:at] + box + content[at + len(own) :])
    for name in (b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"):
        place = changed.index(name) - 4
        changed[place : place + 4] = (int.from_bytes(changed[place : place + 4], "big") + grown).to_bytes(4, "big")
    start = changed.index(b"mdat") + 4
    length = int.from_bytes(changed[start - 8 : start - 4], "big") - 8
    changed[start : start + length] = bytes(length)
    return bytes(changed)


def test_only_common_codecs_are_decoded(tmp_path):
    path = write_video(tmp_path / "clip.avi", [grey(n) for n in range(5)], codec="ffvhuff")
    assert re_in("its codec is not decoded", refusal(path))


def test_a_frame_with_too_many_pixels_is_refused_before_it_is_decoded(clip):
    found = refusal(clip, limits=Limits(max_pixels=SIZE[0] * SIZE[1] - 1))
    assert re_in("64×48 pixels are too many", found)
    assert len(taken(clip, limits=Limits(max_pixels=SIZE[0] * SIZE[1]))[0]) == 30


def test_frames_that_grow_in_the_middle_of_a_video_are_not_decoded(tmp_path):
    small = write_video(tmp_path / "small.ts", map(grey, range(10)), codec="mpeg2video")
    large = write_video(tmp_path / "large.ts", [grey(n, (1280, 720)) for n in range(10)], codec="mpeg2video")
    path = tmp_path / "growing.ts"
    path.write_bytes(small.read_bytes() + large.read_bytes() + small.read_bytes())
    found, camera = taken(path, limits=Limits(max_pixels=64 * 48))
    assert {frame.image.shape for frame in found} == {(48, 64, 3)}
    assert camera.counts.broken
    assert {frame.image.shape for frame in taken(path)[0]} == {(48, 64, 3), (720, 1280, 3)}


@pytest.mark.extensive
def test_damaged_files_of_all_kinds_end_in_one_line_or_in_frames(tmp_path):
    rng = np.random.default_rng(3)
    for ending, codec in (("mp4", "libx264"), ("mkv", "libvpx"), ("ts", "mpeg2video"), ("avi", "mpeg4")):
        whole = write_video(tmp_path / f"whole.{ending}", map(grey, range(20)), codec=codec, rate=25).read_bytes()
        for _ in range(repeated(25)):
            damaged = bytearray(whole)
            for at in rng.integers(0, len(whole), rng.integers(1, 40)):
                damaged[at] = rng.integers(256)
            path = tmp_path / f"damaged.{ending}"
            path.write_bytes(damaged[: rng.integers(1, len(damaged) + 1)])
            with Camera(VideoAddress.parse(str(path)), limits=Limits(max_pixels=10**6)) as camera:
                while not camera.is_over:
                    camera.wait(1)
                    assert all(frame.image.dtype == np.uint8 for frame in camera.take())
            assert camera.failure is None or "\n" not in str(camera.failure)


# -- the process -------------------------------------------------------------------------------------------------------


def children():
    """The processes that decode for this one, with their command lines."""
    found = {process: command_line(process) for process in children_of(os.getpid())}
    return {process: line for process, line in found.items() if "video.process" in line}


def test_a_decoder_ends_with_its_camera_and_names_no_file(long):
    address = replace(VideoAddress.parse(str(long)), login=Login("me", "secret"))
    with Camera(address) as camera:
        wait_for(lambda: camera.counts.moments)
        (args,) = children().values()
        assert "long" not in args
        assert "secret" not in args
    assert not children()
    assert threads_named("camera") == 0


def threads_named(name):
    return sum(one.name.startswith(name) for one in threading.enumerate())


def test_a_file_waits_until_its_frames_are_taken(clip):
    with Camera(VideoAddress.parse(str(clip))) as camera:
        wait_for(lambda: camera.counts.moments >= 4)
        moments = []
        while not camera.is_over:
            camera.wait(1)
            moments += camera.take()
    assert [number_of(frame.image) for frame in moments] == list(range(30))


def test_no_module_of_the_current_folder_is_imported(tmp_path, clip, monkeypatch):
    for name in ("av", "json", "numpy", "pta"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()")
    monkeypatch.chdir(tmp_path)
    assert len(taken(clip)[0]) == 30
    assert not (tmp_path / "imported").exists()


def test_a_decoder_that_dies_costs_its_video_only(clip, long):
    with Camera(VideoAddress.parse(str(long))) as camera:
        wait_for(lambda: camera.counts.moments)
        os.kill(next(iter(children())), signal.SIGKILL)
        while not camera.failure:  # what came before is not lost
            camera.take()
            camera.wait(0.1)
        assert isinstance(camera.failure, MachineFailure)
        assert re_in("its decoder has died", camera.failure)
        assert len(taken(clip)[0]) == 30


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ('"text"', "its decoder sent what it never sends"),
        ('{"pictures": [], "broken": Infinity}', "its decoder sent what it never sends"),
        ("[" * 60_000, "its decoder sent what it never sends"),
        ("{}", "its decoder sent what it never sends"),
        ('{"pictures": [["other", 1, 1]], "broken": 0, "time": 0}', "cannot be right"),
        ('{"pictures": [["", 1, 1]], "broken": 0, "time": NaN}', "cannot be right"),
    ],
)
def test_a_decoder_that_was_taken_over_costs_its_video_only(clip, monkeypatch, header, said):
    sent = len(header).to_bytes(4, "big") + header.encode() + b"rgb"
    program = f"import os, time; os.write(1, {sent!r}); time.sleep(1000)"
    monkeypatch.setattr("pta.door.video.decoder._CALL", program)
    assert re_in(said, refusal(clip))


def test_a_decoder_that_hangs_is_stopped(long):
    with Camera(VideoAddress.parse(str(long)), stall=0.5) as camera:
        wait_for(lambda: camera.counts.moments or camera.failure)
        for child in children():
            os.kill(child, signal.SIGSTOP)
        while camera.take() or not camera.failure:
            camera.wait(0.1)
        assert re_in("gave no sign", camera.failure)
    assert not children()


def test_a_decoder_ends_when_its_parent_is_killed(long):
    program = (
        "import sys, time\nfrom pta.door.video import *\n"
        "camera = Camera(VideoAddress.parse(sys.argv[1])); camera.start(); camera.wait(1000)\n"
        "print(camera._decoder._process.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(long)], stdout=subprocess.PIPE, text=True) as parent:
        decoder = int(parent.stdout.readline())
        parent.kill()
    wait_for(lambda: not is_running(decoder))


# -- logins ------------------------------------------------------------------------------------------------------------


def test_a_login_comes_from_a_private_file_or_a_variable(tmp_path, monkeypatch):
    path = tmp_path / "login"
    path.write_text("me:se:cret\nmore")
    path.chmod(0o600)
    assert Login.from_file(path) == Login("me", "se:cret")
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(UnreadableFile, match="chmod 600"):
            Login.from_file(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    require_private(path)
    monkeypatch.setenv("CAMERA", "me:secret")
    assert Login.from_environment("CAMERA") == Login("me", "secret")
    monkeypatch.setenv("CAMERA", "secret")
    with pytest.raises(InvalidParameter, match="USER:PASSWORD") as caught:
        Login.from_environment("CAMERA")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Login("secret", "secret"))


def test_a_login_is_proved_in_the_bytes_of_the_camera():
    realm, nonce = "Küche", "1"
    answer = Login("jürg", "schlüssel日").answer([f'Digest realm="{realm}", nonce="{nonce}"'], "GET", "/")
    first = hashlib.md5("jürg:".encode() + realm.encode("latin-1") + ":schlüssel日".encode()).hexdigest()
    second = hashlib.md5(b"GET:/").hexdigest()
    response = hashlib.md5(f"{first}:{nonce}:{second}".encode()).hexdigest()
    assert f'response="{response}"' in answer
    assert b'username="j\xc3\xbcrg"' in answer.encode("latin-1")


@pytest.mark.parametrize("rest", ["12/secret@host/1", "12#secret@host/1", "12?secret@host/1"])
def test_a_password_that_looks_like_a_path_is_not_taken_for_one(rest):
    with pytest.raises(InvalidParameter, match="%2F") as caught:
        VideoAddress.parse(f"rtsp://me:{rest}", may_hold_login=True)
    assert "secret" not in str(caught.value)


def test_an_address_is_shown_without_its_login_and_its_query():
    place = "rtsp://me:secret@Camera.local:8554/stream?key=secret"
    with pytest.raises(InvalidParameter, match="--login") as caught:
        VideoAddress.parse(place)
    address = VideoAddress.parse(place, may_hold_login=True)
    assert str(address) == "rtsp://camera.local:8554/stream?…"
    assert address.login == Login("me", "secret")
    for text in (str(caught.value), str(address), repr(address), repr(Camera(address)), str(Camera(address).name)):
        assert "secret" not in text


@pytest.mark.parametrize(
    "place",
    [
        "rtsp://",
        "rtsp://host:99999/",
        "rtsp://host:0/",
        "rtsp://ho st/",
        "http://[::1/",
        "rtsp://höst/",
        "http://h/\n",
        "rtsp://a_b$/",
    ],
)
def test_addresses_that_are_none_are_refused(place):
    with pytest.raises(InvalidParameter):
        VideoAddress.parse(place)


@pytest.mark.parametrize("scheme", ["rtmp", "udp", "srt", "ftp", "concat", "file", "data", "tcp"])
def test_other_protocols_are_refused(scheme):
    with pytest.raises(UnreadableFile, match="pipe the frames"):
        VideoAddress.parse(f"{scheme}://host/secret")


@pytest.mark.parametrize(
    "place", ["concat:a.mp4|b.mp4", "subfile,,start,0,end,0,,:a.mp4", "file:a.mp4", "pipe:0", "data:x.mp4"]
)
def test_names_that_ffmpeg_would_take_for_protocols_are_files(place, tmp_path, monkeypatch, clip):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableFile, match="no such file"):
        VideoAddress.parse(place)
    shutil.copy(clip, place)
    assert len(taken(place)[0]) == 30


# -- for users of Python -----------------------------------------------------------------------------------------------


def test_frames_are_an_iterator_of_pictures(clip):
    with closing(pta.frames(clip, every="1s", regions=["left=0,0,50%,100%"])) as frames:
        assert [(frame.time, frame.region, frame.image.shape) for frame in frames] == [
            (float(time), "left", (48, 32, 3)) for time in range(3)
        ]


def test_a_path_to_a_video_is_answered_with_what_takes_it(clip):
    with pytest.raises(UnreadableFile, match=r"pta\.frames"):
        pta.Classifier("embedded", ["bag", "shirt"], cache=None)(str(clip))


def test_a_missing_package_is_one_line(clip, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    found = refusal(clip)
    assert re_in("videos need PyAV; run pip install 'pta-vlm[video]'", found)
