"""Live cameras: MJPEG and snapshots over HTTP, RTSP, reconnecting, gaps, and what hostile ones try."""

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("av", reason="PyAV is not installed")

from http_camera import http_camera
from processes import wait_for
from videos import number_of

from pta.core.limits import Limits
from pta.door.video import Camera, Login, Region, Timing, VideoAddress, video_frames
from pta.errors import MachineFailure, PtaError, UnreadableFile, UserMistake

ME = Login("me", "secret")


@pytest.fixture(scope="module")
def server():
    with http_camera() as camera:
        yield camera


def first(address, count, timing=None, **how):
    """The first moments of a camera; what it raises before the first."""
    moments = video_frames(Camera(address, "", timing, **how))
    try:
        return [next(moments) for _ in range(count)]
    finally:
        moments.close()


def refusal(address, **how):
    with pytest.raises(PtaError) as caught:
        first(address, 10**6, **how)
    said = str(caught.value)
    assert "\n" not in said
    assert "secret" not in said
    return caught.value


# -- HTTP --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["mjpeg", "without-lengths", "snapshot", "to-snapshot", "to-space"])
def test_pictures_come_over_http_with_the_time_of_day(server, path):
    address = VideoAddress.parse(f"{server.url}/{path}")
    moments = first(address, 3, Timing(every=0.05), regions=[Region.parse("a=0,0,50%,50%")])
    assert all(frame.image.shape == (24, 32, 3) and frame.gap is None for (frame,) in moments)
    times = [frame.time for (frame,) in moments]
    assert times == sorted(times)
    assert times[0] > 1.7e9
    assert len({number_of(frame.image) for (frame,) in moments}) == 3


def test_without_lengths_every_picture_comes(server):
    """Or was replaced by a newer one before it was taken, on a busy machine."""
    numbers = []
    with Camera(VideoAddress.parse(f"{server.url}/without-lengths")) as camera:
        while len(numbers) < 6:
            camera.wait(1)
            numbers += [number_of(frame.image) for frame in camera.take()]
        lacking = [(after - before - 1) % 30 for before, after in pairwise(numbers)]
        assert sum(lacking) <= camera.counts.passed_over


def test_broken_pictures_are_skipped_and_counted(server):
    with Camera(VideoAddress.parse(f"{server.url}/broken")) as camera:
        while camera.counts.moments < 3:
            camera.wait(1)
            for frame in camera.take():
                assert frame.image.std() < 2
        assert camera.counts.broken >= 2
        assert camera.failure is None


def test_a_lost_connection_is_tried_again_and_leaves_a_gap(server):
    with Camera(VideoAddress.parse(f"{server.url}/drops"), pauses=(0.05, 0.1)) as camera:
        gaps, seen = [], 0
        while len(gaps) < 3:
            camera.wait(1)
            for frame in camera.take():
                seen += 1
                if frame.gap is not None:
                    assert frame.gap > 0
                    gaps.append(frame.gap)
        assert camera.counts.connections >= 4
        assert seen >= 4


def test_the_newest_frame_replaces_those_that_nobody_took(server):
    with Camera(VideoAddress.parse(f"{server.url}/mjpeg")) as camera:
        wait_for(lambda: camera.counts.moments >= 10)
        assert len(camera.take()) == 1
        assert camera.counts.passed_over >= 9


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("none", UserMistake, "answers 404"),
        ("page", UserMistake, "neither MJPEG nor a JPEG or PNG picture, but text/html"),
        ("escapes", UserMistake, "but \\x1b[31mred"),
        ("garbage", UserMistake, "not MJPEG"),
        ("endless-part", UserMistake, "more than 100,000 bytes"),
        ("long-part", UserMistake, "99,999,999,999 bytes"),
        ("endless-headers", MachineFailure, "header"),
        ("endless-part-headers", UserMistake, "too many lines"),
        ("to-other-host", UserMistake, "redirects to another host"),
        ("to-itself", UserMistake, "redirects again and again"),
        ("basic", UserMistake, "asks for a user and a password"),
    ],
)
def test_a_camera_that_misbehaves_is_refused_in_one_line(server, path, kind, said):
    found = refusal(VideoAddress.parse(f"{server.url}/{path}?key=secret"), limits=Limits(max_bytes=100_000))
    assert isinstance(found, kind)
    assert said in str(found)


def test_a_camera_that_sends_a_byte_now_and_then_is_given_up(server):
    found = refusal(VideoAddress.parse(f"{server.url}/slow"), stall=1.0)
    assert "gave no sign for 1 seconds" in str(found)


def test_a_picture_with_too_many_pixels_is_not_decoded(server):
    with Camera(
        VideoAddress.parse(f"{server.url}/huge"), timing=Timing(0.02), limits=Limits(max_pixels=10**6)
    ) as camera:
        wait_for(lambda: camera.failure is not None)
        assert "10 pictures in a row are broken, have more pixels than --max-pixels" in str(camera.failure)
        assert not camera.counts.moments


def test_logins_are_given_as_they_are_asked_for_and_to_nobody_else(server):
    for path in ("basic", "digest"):
        moments = first(VideoAddress.parse(f"{server.url}/{path}", ME), 2, Timing(every=0.05))
        assert len(moments) == 2
        found = refusal(VideoAddress.parse(f"{server.url}/{path}", Login("me", "other secret")))
        assert "refuses the user or the password" in str(found)
    server.asked.clear()
    first(VideoAddress.parse(f"{server.url}/snapshot", ME), 1)
    refusal(VideoAddress.parse(f"{server.url}/to-other-host", ME))
    assert {given for _, given in server.asked} == {None}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    call = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "2"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*call, *more], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def wrap(listening):
        return context.wrap_socket(listening, server_side=True, do_handshake_on_connect=False)

    with http_camera(wrap) as server:
        assert "certificate of the camera is not trusted" in str(refusal(VideoAddress.parse(f"{server.url}/snapshot")))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(certificate))
            assert len(first(VideoAddress.parse(f"{server.url}/snapshot"), 1)) == 1


def test_nobody_there_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    for scheme in ("http", "rtsp"):
        found = refusal(VideoAddress.parse(f"{scheme}://127.0.0.1:{port}/stream"))
        assert isinstance(found, MachineFailure)
        assert "refused" in str(found).lower()
    assert "camera:987" in str(refusal(VideoAddress.parse("camera:987")))


def test_cameras_do_not_hold_each_other_up(server):
    changed = threading.Event()
    places = ["slow", "mjpeg", "none", "mjpeg", "snapshot"]
    cameras = [
        Camera(
            VideoAddress.parse(f"{server.url}/{place}"), str(number), Timing(every=0.1), on_change=changed.set, stall=60
        )
        for number, place in enumerate(places)
    ]
    counts = dict.fromkeys(range(len(cameras)), 0)
    try:
        for camera in cameras:
            camera.start()
        while min(counts[number] for number in (1, 3, 4)) < 5:
            changed.wait(1)
            changed.clear()
            for number, camera in enumerate(cameras):
                counts[number] += bool(camera.take())
        assert counts[0] == counts[2] == 0
        assert isinstance(cameras[2].failure, UnreadableFile)
    finally:
        for camera in cameras:
            camera.close()


# -- RTSP --------------------------------------------------------------------------------------------------------------


def has_rtsp_server():
    check = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    try:
        return subprocess.run(["/usr/bin/python3", "-c", check], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


needs_rtsp = pytest.mark.skipif(
    not has_rtsp_server(), reason="no RTSP server: Debian's gir1.2-gst-rtsp-server-1.0 and python3-gi are not installed"
)
PIPELINE = (
    "videotestsrc is-live=true pattern={pattern} ! video/x-raw,format=I420,width=320,height=240,framerate=10/1 "
    "! jpegenc ! rtpjpegpay pt=26"
)
SERVER = str(Path(__file__).with_name("rtsp_server.py"))


@contextmanager
def rtsp_server(*login, pattern="white", port=0):
    call = ["/usr/bin/python3", SERVER, str(port), PIPELINE.format(pattern=pattern), *login]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(call, **pipes) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@needs_rtsp
@pytest.mark.parametrize("login", [(), ("me", "secret", "basic"), ("me", "secret", "digest")])
def test_frames_come_over_rtsp(login):
    with rtsp_server(*login) as (_, port):
        place = f"rtsp://127.0.0.1:{port}/stream"
        moments = first(VideoAddress.parse(place, ME if login else None), 3, Timing(every=0.2))
        assert all(frame.image.shape == (240, 320, 3) and frame.image.mean() > 200 for (frame,) in moments)
        if login:
            assert "asks for a user" in str(refusal(VideoAddress.parse(place)))
            assert "refuses the user" in str(refusal(VideoAddress.parse(place, Login("me", "other secret"))))
        assert "there is no such stream" in str(refusal(VideoAddress.parse(f"rtsp://127.0.0.1:{port}/none", ME)))


@needs_rtsp
def test_an_rtsp_camera_that_was_away_comes_back_with_a_gap():
    with rtsp_server() as (_, port):
        camera = Camera(VideoAddress.parse(f"rtsp://127.0.0.1:{port}/stream"), timing=Timing(0.2), pauses=(0.2,))
        camera.start()
        wait_for(lambda: camera.counts.moments)
    try:
        wait_for(lambda: camera.failure)
        while camera.take():
            pass
        with rtsp_server(pattern="black", port=port) as _:
            moment = []
            while not moment:
                camera.wait(1)
                moment = camera.take()
            assert moment[0].gap > 0
            assert moment[0].image.mean() < 60
            assert camera.failure is None
    finally:
        camera.close()


@contextmanager
def talking(answer):
    """A server that answers whatever comes, and the requests it got."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        asked.append(connection.recv(2**16))
                        connection.sendall(answer(asked[-1]))
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1], asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def sequence(request):
    return next(line for line in request.split(b"\r\n") if line.startswith(b"CSeq"))


def test_an_rtsp_redirect_is_not_followed_and_the_login_goes_nowhere():
    with talking(lambda request: b"") as (other, asked):

        def redirect(request):
            target = f"Location: rtsp://127.0.0.1:{other}/stream".encode()
            return b"RTSP/1.0 302 Found\r\n" + sequence(request) + b"\r\n" + target + b"\r\n\r\n"

        with talking(redirect) as (port, requests):
            found = refusal(VideoAddress.parse(f"rtsp://127.0.0.1:{port}/stream", ME))
            assert "redirects to another address" in str(found)
            assert requests
            assert not any(b"secret" in request or b"Authorization" in request for request in requests)
        assert not asked


@pytest.mark.parametrize(
    "begin",
    [
        b"RTSP/2 302 Found\r\n",
        b" RTSP/1.0 302 Found\r\n",
        b"RTSP/1.0 0302 Found\r\n",
        b"RTSP/1.0 200 OK\nCSeq: 0\n\nRTSP/1.0 302 Found\r\n",
        b"RTSP/1.0 200 OK\r\n$\0\0\2ab\r\n\r\nRTSP/1.0 302 Found\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: +5\r\n\r\n12345RTSP/1.0 302 Found\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nRTSP/1.0 302 Found\r\n",
    ],
)
def test_a_reply_that_ffmpeg_may_take_for_a_redirect_is_not_passed_on(begin):
    with talking(lambda request: b"") as (other, asked):
        end = f"\r\nLocation: rtsp://127.0.0.1:{other}/stream\r\n\r\n".encode()
        with talking(lambda request: begin + sequence(request) + end) as (port, _):
            assert "does not speak RTSP" in str(refusal(VideoAddress.parse(f"rtsp://127.0.0.1:{port}/stream")))
        assert not asked


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\0" * 2**17, "RTSP"),
        (b"RTSP/1.0 200 OK\r\n" + b"X-More: 1\r\n" * 10**5, "does not speak RTSP"),
        (b"RTSP/1.0 200 OK\r\nContent-Length: 9999999\r\n\r\n", "describes itself at too great a length"),
        (b"RTSP/1.0 503 No\r\nCSeq: 1\r\n\r\n", "answers 503"),
        (b"", ""),
    ],
)
def test_an_rtsp_camera_that_misbehaves_is_one_line(answer, said):
    with talking(lambda request: answer) as (port, _):
        found = refusal(VideoAddress.parse(f"rtsp://127.0.0.1:{port}/stream"))
        assert said in str(found)
