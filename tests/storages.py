"""Storages that fail: in front of real files, and as a real server."""

import errno
import os
import random
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from pta.door.patience import Patience, reading


def no_sleep(seconds):
    """Wait for nothing."""


def storage(fault):
    """A patience whose storage calls `fault` with a sample's key before it reads the sample."""

    class Storage(Patience):  # in a function, so that it is sent to workers by value
        def ask(self, get):
            key = get.func.__self__.key

            def once():
                with reading(key):
                    fault(key)
                return get()

            return super().ask(once)

    return Storage(sleep=no_sleep)


def at_random(share, seed=1):
    """A fault of some share of all reads."""
    dice = random.Random(seed)

    def fault(key):
        if dice.random() < share:
            raise OSError(errno.EIO, "Input/output error")

    return fault


def for_good(key):
    """A fault of every read."""
    raise OSError(errno.ESTALE, "Stale file handle")


def of_one_worker(note):
    """A fault of every read by the process that reads first, which is noted at a path."""

    def fault(key):
        with suppress(FileExistsError):
            note.symlink_to(str(os.getpid()))  # at once whole
        if str(note.readlink()) == str(os.getpid()):
            raise OSError(errno.EIO, "Input/output error")

    return fault


class LaterGone:
    """A file that is gone once the listing is written."""

    def __init__(self, path):
        from pta.cluster.ray.listing import Listing  # needs an extra

        self.path, self.away, self._write = path, path.with_suffix(".away"), Listing.write

    def __get__(self, listing, kind):
        def write(folder):
            self._write(listing, folder)
            self.path.rename(self.away)

        return write


@contextmanager
def closed_in_the_end(kind, session_of, close):
    """Filesystems of an fsspec class, whose sessions are closed however long it takes.

    Their own class gives up after a tenth of a second, and a busy machine is left with open sockets.
    """
    from fsspec.asyn import sync

    kind.clear_instance_cache()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "close_session", staticmethod(lambda loop, session: None))
        try:
            yield
        finally:
            for system in kind._cache.values():
                if (session := session_of(system)) is not None:
                    sync(system.loop, partial(close, session))
            kind.clear_instance_cache()


@contextmanager
def serving(folder, answer):
    """The address of a server of the files in a folder; `answer` gives a status, or "short", for each GET of a name."""
    from fsspec.implementations.http import HTTPFileSystem  # needs an extra

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self._head(200, len((folder / self.path[1:]).read_bytes()))

        def do_GET(self):
            content, status = (folder / self.path[1:]).read_bytes(), answer(self.path[1:])
            if status == "short":
                self._head(200, len(content))
                self.wfile.write(content[:-10])
                self.close_connection = True
            elif status == 200:
                self._head(200, len(content))
                self.wfile.write(content)
            else:
                self._head(status, 0)

        def _head(self, status, size):
            self.send_response(status)
            self.send_header("Content-Length", str(size))
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        with closed_in_the_end(HTTPFileSystem, lambda system: system._session, lambda session: session.close()):
            yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
