"""As much of the hub's HTTP interface as loading and pushing a model takes, on this machine."""

import base64
import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit


@dataclass
class FakeHub:
    """Repositories by name, each with its files, and what was asked of them."""

    token: str = "hf_secret"
    files: dict = field(default_factory=dict)  # by repository
    public: set = field(default_factory=set)
    sizes: dict = field(default_factory=dict)  # by file, where they are said to be others
    asked: list = field(default_factory=list)  # methods and paths
    bodies: list = field(default_factory=list)
    url: str = ""

    def revision(self, name):
        """A commit that follows from the files."""
        about = [(path, hashlib.sha256(content).hexdigest()) for path, content in sorted(self.files[name].items())]
        return hashlib.sha1(json.dumps(about).encode()).hexdigest()

    def about(self, name):
        """What the hub tells of a repository."""
        held = self.files[name].items()
        siblings = [{"rfilename": path, "size": self.sizes.get(path, len(content))} for path, content in held]
        fixed = {"id": name, "modelId": name, "tags": [], "downloads": 0, "likes": 0}
        return {**fixed, "sha": self.revision(name), "private": name not in self.public, "siblings": siblings}

    def answer(self, method, path, body, token):
        """Status, content and headers."""
        self.asked.append(f"{method} {path}")
        self.bodies.append(body)
        parts = path.strip("/").split("/")
        if token != f"Bearer {self.token}" and not self.public:
            return 401, b"{}", {}
        if path == "/api/validate-yaml":
            return 200, {}, {}
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization', 'me')}/{asked['name']}"
            known = name in self.files
            self.files.setdefault(name, {})
            if not known and asked.get("visibility", "private" if asked.get("private") else "public") == "public":
                self.public.add(name)
            return 409 if known else 200, {"url": f"{self.url}/{name}", "id": name, "name": name}, {}
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if name not in self.files:
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        if "preupload" in parts:
            modes = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            return 200, {"files": modes}, {}
        if "commit" in parts and method == "POST":
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    self.files[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            commit = self.revision(name)
            return 200, {"commitUrl": f"{self.url}/{name}/commit/{commit}", "commitOid": commit, "success": True}, {}
        if parts[0] == "api":
            wanted = parts[5] if parts[4:5] == ["revision"] else "main"
            if wanted not in ("main", self.revision(name)):
                return 404, {"error": "Revision not found"}, {"X-Error-Code": "RevisionNotFound"}
            return 200, self.about(name), {}
        return self._file(name, "/".join(parts[4:]))

    def _file(self, name, path):
        if path not in self.files[name]:
            return 404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"}
        content = self.files[name][path]
        tag = f'"{hashlib.sha1(content).hexdigest()}"'
        return 200, content, {"ETag": tag, "X-Repo-Commit": self.revision(name)}


@contextmanager
def fake_hub():
    """A hub that runs while tests ask it."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = unquote(urlsplit(self.path).path)
            status, content, headers = hub.answer(self.command, path, body, self.headers.get("Authorization"))
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(content)), "Connection": "close"}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
