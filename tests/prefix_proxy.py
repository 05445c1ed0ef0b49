"""A proxy that takes a prefix off every path, as one in front of `pta serve --root-path` does."""

import socket
import threading
from contextlib import contextmanager, suppress


@contextmanager
def prefix_proxy(prefix, port):
    """The port at which PREFIX/x is what the given port has at /x; everything else is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, prefix.encode(), port), daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening, prefix, port):
    with suppress(OSError):  # the end
        while True:
            browser, _ = listening.accept()
            threading.Thread(target=_answer, args=(browser, prefix, port), daemon=True).start()


def _answer(browser, prefix, port):
    """One request per connection, so that no answer has to be understood."""
    with browser, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as service:
        asked = b""
        while b"\r\n\r\n" not in asked:
            asked += browser.recv(2**16)
        line, rest = asked.split(b"\r\n", 1)
        method, path, version = line.split(b" ")
        if not path.startswith(prefix + b"/"):
            browser.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        rest = rest.replace(b"Connection: keep-alive", b"Connection: close")
        service.sendall(b" ".join((method, path.removeprefix(prefix), version)) + b"\r\n" + rest)
        threading.Thread(target=_copy, args=(browser, service), daemon=True).start()
        _copy(service, browser)


def _copy(source, target):
    with suppress(OSError):
        while part := source.recv(2**16):
            target.sendall(part)
