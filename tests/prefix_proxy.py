"""A proxy that takes a prefix off every path, as one in front of `pta serve --root-path` does."""

import socket
import threading
from contextlib import contextmanager, suppress


@contextmanager
def prefix_proxy(prefix, port):
    """The port at which PREFIX/x is what the given port has at /x; everything else is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = _Proxy(listening, prefix.encode(), port)
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            proxy.end()


class _Proxy:
    """Threads that copy what browser and service say; none is left after `end`."""

    def __init__(self, listening, prefix, port):
        self._listening, self._prefix, self._port = listening, prefix, port
        self._open, self._threads = [], []
        self._start(self._accept)

    def end(self):
        """Hang up on everybody."""
        for thread in self._threads:  # the list grows until the first one has ended
            for connection in self._open:
                with suppress(OSError):  # it is closed already
                    connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _start(self, work, *arguments):
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _accept(self):
        with suppress(OSError):  # the end
            while True:
                browser, _ = self._listening.accept()
                self._open.append(browser)
                self._start(self._answer, browser)

    def _answer(self, browser):
        """One request per connection, so that no answer has to be understood."""
        with browser, suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as service:
            self._open.append(service)
            asked = b""
            while b"\r\n\r\n" not in asked:
                if not (part := browser.recv(2**16)):
                    return
                asked += part
            line, rest = asked.split(b"\r\n", 1)
            method, path, version = line.split(b" ")
            if not path.startswith(self._prefix + b"/"):
                browser.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            rest = rest.replace(b"Connection: keep-alive", b"Connection: close")
            service.sendall(b" ".join((method, path.removeprefix(self._prefix), version)) + b"\r\n" + rest)
            self._start(_copy, browser, service)
            _copy(service, browser)


def _copy(source, target):
    with suppress(OSError):
        while part := source.recv(2**16):
            target.sendall(part)
