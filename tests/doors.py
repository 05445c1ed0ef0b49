"""Videos in which a region shows one of two pictures that the packaged model tells apart, in changing light."""

import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO

import numpy as np
from http_camera import serving
from photos import FASHION
from PIL import Image

CLASSES, BOX = "ankle boot,shirt", "100,20,120,120"


def pictures_of(name, count):
    """Packaged pictures of a class."""
    number = FASHION.class_names.index(name)
    return FASHION.images[: len(FASHION.labels)][np.asarray(FASHION.labels) == number][:count]


def frame(picture, *, light=1.0, size=(320, 180), box=(100, 20, 120, 120), noise=0):
    """A grey frame with a picture in a box, as bright as the light."""
    width, height = size
    x, y, w, h = box
    pixels = np.full((height, width), 90, np.float64)
    pixels[y : y + h, x : x + w] = np.asarray(Image.fromarray(picture).resize((w, h)))
    pixels = pixels * light + noise
    return np.repeat(np.clip(pixels, 0, 255).astype(np.uint8)[:, :, None], 3, axis=2)


def door(changes, hold=20, seed=1):
    """Frames of a region that shows a boot, then a shirt and so on, so many changes after the first, with moving light.

    Each is shown for `hold` frames.
    """
    rng = np.random.default_rng(seed)
    shown = [pictures_of(name, 40) for name in ("ankle boot", "shirt")]
    for part in range(changes + 1):
        picture = shown[part % 2][part % 40]
        for number in range(hold):
            light = 0.75 + 0.25 * np.sin((part * hold + number) / 17)
            yield frame(picture, light=light, noise=rng.normal(0, 4, (180, 320)))


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        with suppress(OSError):
            while not self.server.stopping.wait(self.server.pause):
                if self.path == "/door":
                    content = self.server.content
                    head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(content)}\r\n\r\n"
                    self.wfile.write(head.encode() + content + b"\r\n")

    def log_message(self, *given):
        pass


class DoorCamera(ThreadingHTTPServer):
    """A camera over HTTP: `/door` has the picture that was shown last, `/hang` has nothing for ever."""

    daemon_threads, block_on_close = False, True

    def __init__(self, pause=0.05, size=(320, 180)):
        self.stopping, self.pause, self._size = threading.Event(), pause, size
        self.show("ankle boot")
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def show(self, name):
        """Show a picture of a class from now on."""
        encoded = BytesIO()
        Image.fromarray(frame(pictures_of(name, 1)[0], size=self._size)).save(encoded, "JPEG", quality=95)
        self.content = encoded.getvalue()


@contextmanager
def door_camera(**how):
    with serving(DoorCamera(**how)) as server:
        yield server
