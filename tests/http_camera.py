"""A small HTTP server that plays a camera, and misbehaves as it is told."""

import hashlib
import io
import re
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image
from videos import grey


def jpeg(number, size=(64, 48)):
    """A picture whose brightness is its number."""
    content = io.BytesIO()
    Image.fromarray(grey(number, size)).save(content, "JPEG", quality=95)
    return content.getvalue()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        with suppress(OSError):
            getattr(self, "play_" + self.path.partition("?")[0].strip("/").replace("-", "_"), self.missing)()

    def missing(self):
        self.send_error(404)

    def head(self, kind, status=200, **more):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def parts(self, contents, *, length=True, boundary="--frame"):
        self.head("multipart/x-mixed-replace; boundary=frame")
        for content in contents:
            size = f"Content-Length: {len(content)}\r\n" if length else ""
            self.wfile.write(f"{boundary}\r\nContent-Type: image/jpeg\r\n{size}\r\n".encode() + content + b"\r\n")
            if self.server.stopping.wait(0.02):
                return

    def numbers(self):
        while True:
            self.server.number += 1
            yield jpeg(self.server.number)

    def play_snapshot(self):
        self.head("image/jpeg")
        self.wfile.write(next(self.numbers()))

    def play_mjpeg(self):
        self.parts(self.numbers())

    def play_stops(self):
        """Sends ten pictures, and no more."""
        contents = self.numbers()
        self.parts(next(contents) for _ in range(10))
        self.server.stopping.wait()

    def play_without_lengths(self):
        self.parts(self.numbers(), length=False)

    def play_drops(self):
        """Ends in the middle of the fourth picture."""
        for number, content in enumerate(self.numbers()):
            if number == 0:
                self.head("multipart/x-mixed-replace; boundary=frame")
            self.wfile.write(b"--frame\r\nContent-Length: %d\r\n\r\n" % len(content))
            self.wfile.write(content[: 100 if number == 3 else None] + b"\r\n")
            if number == 3:
                return

    def play_broken(self):
        """Of three pictures one is cut, and one is none."""

        def pictures():
            for number, content in enumerate(self.numbers()):
                yield (content, content[: len(content) // 2], b"\xff\xd8\xff" + b"x" * 500 + b"\xff\xd9")[number % 3]

        self.parts(pictures())

    def play_garbage(self):
        self.head("multipart/x-mixed-replace; boundary=frame")
        self.wfile.write(b"\0\xff" * 10_000)

    def play_endless_part(self):
        self.head("multipart/x-mixed-replace; boundary=frame")
        self.wfile.write(b"--frame\r\n\r\n")
        while not self.server.stopping.is_set():
            self.wfile.write(b"x" * 1000 + b"\n")

    def play_long_part(self):
        self.head("multipart/x-mixed-replace; boundary=frame")
        self.wfile.write(b"--frame\r\nContent-Length: 99999999999\r\n\r\n")

    def play_endless_headers(self):
        self.wfile.write(b"HTTP/1.0 200 OK\r\n")
        while not self.server.stopping.is_set():
            self.wfile.write(b"X-More: 1\r\n" * 100)

    def play_endless_part_headers(self):
        self.head("multipart/x-mixed-replace; boundary=frame")
        self.wfile.write(b"--frame\r\n")
        while not self.server.stopping.is_set():
            self.wfile.write(b"X-More: 1\r\n" * 100)

    def play_slow(self):
        self.head("multipart/x-mixed-replace; boundary=frame")
        self.wfile.write(b"--frame\r\nContent-Length: 5000\r\n\r\n")
        while not self.server.stopping.wait(0.05):
            self.wfile.write(b"x")

    def play_page(self):
        self.head("text/html")
        self.wfile.write(b"<html>hello</html>")

    def play_huge(self):
        self.head("image/jpeg")
        self.wfile.write(jpeg(1, (2000, 1500)))

    def play_to_other_host(self):
        self.head("text/html", 302, Location=f"http://localhost:{self.server.server_port}/snapshot")

    def play_to_itself(self):
        self.head("text/html", 302, Location="/to-itself")

    def play_to_snapshot(self):
        self.head("text/html", 302, Location="/snapshot")

    def play_to_space(self):
        self.head("text/html", 302, Location="/snapshot?key=secret and more")

    def play_escapes(self):
        self.head("\x1b[31mred")

    def play_basic(self):
        if self.headers.get("Authorization") == "Basic bWU6c2VjcmV0":  # me:secret
            self.play_snapshot()
        else:
            self.head("text/html", 401, WWW_Authenticate='Basic realm="camera"')

    def play_digest(self):
        given = dict(re.findall(r'(\w+)="?([^",]+)"?', self.headers.get("Authorization") or ""))

        def digest(text):
            return hashlib.md5(text.encode()).hexdigest()

        first, second = digest("me:camera:secret"), digest(f"GET:{self.path}")
        whole = f"{first}:N:{given.get('nc')}:{given.get('cnonce')}:auth:{second}"
        if given.get("response") == digest(whole):
            self.play_snapshot()
        else:
            self.head("text/html", 401, WWW_Authenticate='Digest realm="camera", nonce="N", qop="auth", opaque="o"')

    def log_message(self, *given):
        pass


@contextmanager
def serving(server):
    """A server that answers in a thread, and ends what it was doing when the block is left."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def http_camera(wrap=None):
    """The server, at `url`; `wrap` may make TLS of its socket."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads, server.block_on_close = False, True
    server.asked, server.number, server.stopping = [], 0, threading.Event()
    if wrap is not None:
        server.socket = wrap(server.socket)
    server.url = f"{'http' if wrap is None else 'https'}://127.0.0.1:{server.server_port}"
    with serving(server):
        yield server
