"""A package registry on loopback for the real npm and uv, with one package of each. Downloads are counted."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TARBALL = "/greeting/-/greeting-1.0.0.tgz"
WHEEL = "/simple/greeting/greeting-1.0-py3-none-any.whl"


def _tarball() -> bytes:
    files = {
        "package.json": json.dumps({"name": "greeting", "version": "1.0.0", "bin": {"greet": "greet.js"}}),
        "greet.js": "#!/usr/bin/env node\nconsole.log('hello from npm')\n",
    }
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return written.getvalue()


def _wheel() -> bytes:
    about, name = "greeting-1.0.dist-info", "greeting.py"
    files = {
        name: "def main():\n    print('hello from uv')\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": "[console_scripts]\ngreet = greeting:main\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return written.getvalue()


@dataclass
class PackageRegistry:
    """Serves the package `greeting`, whose program is `greet`. `requested` has the paths of all requests."""

    url: str = ""
    requested: list[str] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=lambda: {TARBALL: _tarball(), WHEEL: _wheel()})
    _answers: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._answers.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let every request wait until the end of the block."""
        self._answers.clear()
        yield
        self._answers.set()

    def find(self, path: str) -> bytes | None:
        self.requested.append(path)
        self._answers.wait(timeout=60)
        return self.contents.get(path) or self._pages.get(path)

    @property
    def downloads(self) -> list[str]:
        return sorted(path for path in self.requested if path in self.contents)

    @property
    def _pages(self) -> dict[str, bytes]:
        link = f'<a href="{WHEEL}#sha256={hashlib.sha256(self.contents[WHEEL]).hexdigest()}">'
        return {"/simple/greeting/": f"<!DOCTYPE html>{link}{WHEEL.rpartition('/')[2]}</a>".encode()}

    def npm_project(self) -> dict[str, str]:
        """Return the files of a project that depends on the package, by name."""
        needs = {"name": "app", "version": "1.0.0", "dependencies": {"greeting": "1.0.0"}}
        digest = base64.b64encode(hashlib.sha512(self.contents[TARBALL]).digest()).decode()
        package = {
            "version": "1.0.0",
            "resolved": self.url + TARBALL,
            "integrity": f"sha512-{digest}",
            "bin": {"greet": "greet.js"},
        }
        lock = {
            "name": "app",
            "version": "1.0.0",
            "lockfileVersion": 3,
            "packages": {"": needs, "node_modules/greeting": package},
        }
        return {
            "package.json": json.dumps(needs),
            "package-lock.json": json.dumps(lock),
            ".npmrc": f"registry={self.url}/\n",
        }

    def uv_project(self) -> dict[str, str]:
        """Return the files of a project that depends on the package; `uv lock` makes its lock file."""
        return {
            "pyproject.toml": (
                '[project]\nname = "app"\nversion = "1.0"\nrequires-python = ">=3.11"\n'
                'dependencies = ["greeting"]\n\n'
                f'[[tool.uv.index]]\nurl = "{self.url}/simple/"\ndefault = true\n'
            )
        }


@contextmanager
def package_registry() -> Iterator[PackageRegistry]:
    registry = PackageRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = registry.find(self.path)
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/zip")
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(found or b"")

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
