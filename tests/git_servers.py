"""Real git servers on loopback: https with a password (`git http-backend`), and ssh (`sshd`)."""

from __future__ import annotations

import base64
import getpass
import json
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_connection, create_server
from typing import Any
from urllib.parse import urlsplit

from tests import machine
from tests.integration.receivers import certificate

USER, TOKEN = "robot", "glpat-a-secret/token+of-the-project"
_PATIENCE = 20.0
_LFS_JSON = ("Content-Type", "application/vnd.git-lfs+json")


def bare_repository(path: Path) -> Path:
    """Return an empty bare repository whose default branch is `main`."""
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(path)], check=True)
    subprocess.run(["git", "-C", str(path), "config", "http.receivepack", "true"], check=True)
    return path


def refuse_pushes(repository: Path, saying: str) -> None:
    """Let the repository's pre-receive hook refuse everything."""
    hook = repository / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho '{saying}' >&2\nexit 1\n")
    hook.chmod(0o755)


def count_pushes(repository: Path) -> Path:
    """Let the repository note each update of a branch as a line of the returned file."""
    notes, hook = repository / "pushes", repository / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ncat >> {notes}\n")
    hook.chmod(0o755)
    notes.touch()
    return notes


@dataclass
class HttpsServer:
    """Serves the repositories of a folder to USER with TOKEN. `seen` has the head lines of all requests.

    With `open_contents`, everybody can read contents of Git LFS.
    """

    folder: Path
    authority: Path
    port: int = 0
    redirects_to: str = ""
    refuses_contents: bool = False
    open_contents: bool = False
    seen: list[str] = field(default_factory=list)

    def url(self, name: str) -> str:
        return f"https://localhost:{self.port}/{name}"


class _Contents(BaseHTTPRequestHandler):
    """Takes contents of Git LFS into the folder `lfs-store`, as its batch API says."""

    serving: HttpsServer

    def offer_uploads(self, asked: Any) -> None:
        """Say where each content that is missing may be sent to."""
        if self.serving.refuses_contents:
            message = f"Your quota of storage is used up, {self.headers['Authorization']}."
            self._end(507, [_LFS_JSON], json.dumps({"message": message}).encode())
            return
        objects = [{**one, "authenticated": True, **self._actions(one["oid"])} for one in asked["objects"]]
        answer = json.dumps({"transfer": "basic", "objects": objects}).encode()
        self._end(200, [_LFS_JSON], answer)

    def offer_downloads(self, asked: Any) -> None:
        """Say from where each content can be read."""
        objects = [
            {
                **one,
                "authenticated": True,
                "actions": {"download": {"href": self.serving.url(f"lfs-store/{one['oid']}")}},
            }
            for one in asked["objects"]
        ]
        self._end(200, [_LFS_JSON], json.dumps({"transfer": "basic", "objects": objects}).encode())

    def _actions(self, name: str) -> dict[str, Any]:
        if (self.serving.folder / "lfs-store" / name).exists():
            return {}
        upload = {"href": self.serving.url(f"lfs-store/{name}"), "header": {"X-Ticket": "1"}}
        return {"actions": {"upload": upload}}

    def do_PUT(self) -> None:
        self.serving.seen.append(f"PUT {self.path} {self.headers.get('Authorization', '')}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        store = self.serving.folder / "lfs-store"
        store.mkdir(exist_ok=True)
        (store / self.path.rpartition("/")[2]).write_bytes(body)
        self._end(200 if self.headers.get("X-Ticket") else 403, [])

    def _end(self, status: int, headers: list[tuple[str, ...]], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def https_server(folder: Path) -> Iterator[HttpsServer]:
    authority = certificate(folder, name="localhost")
    serving = HttpsServer(folder, authority)

    class Handler(_Contents):
        def do_GET(self) -> None:
            serving.seen.append(f"{self.command} {self.path} {self.headers.get('Authorization', '')}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            allowed = base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
            sent, for_contents = self.headers.get("Authorization", ""), self.path.endswith("/objects/batch")
            if serving.open_contents and self.path.startswith("/lfs-store/"):
                self._end(200, [], (folder / self.path[1:]).read_bytes())
            elif serving.open_contents and for_contents:
                self.offer_downloads(json.loads(body))
            elif serving.redirects_to:
                self._end(302, [("Location", serving.redirects_to + self.path)])
            elif sent != f"Basic {allowed}":
                self._end(401, [("WWW-Authenticate", 'Basic realm="git"')])
            elif for_contents:
                self.offer_uploads(json.loads(body))
            else:
                self._run_git(body)

        do_POST = do_GET

        def _run_git(self, body: bytes) -> None:
            parts = urlsplit(self.path)
            variables = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REMOTE_USER": USER,
                "REQUEST_METHOD": self.command,
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            command = ["git", "http-backend"]
            output = subprocess.run(
                command, input=body, env=variables, capture_output=True, check=True
            ).stdout
            head, _, answer = output.partition(b"\r\n\r\n")
            headers = [tuple(line.split(": ", 1)) for line in head.decode().splitlines()]
            status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
            self._end(status, [one for one in headers if one[0] != "Status"], answer)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Print no traceback."""

    Handler.serving = serving
    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield serving
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class SshServer:
    """Lets whoever has `private_key` in as the user of this process. `programs` is a folder on its PATH."""

    folder: Path
    port: int
    private_key: str
    known_hosts: str
    programs: Path

    def url(self, name: str) -> str:
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{self.folder}/{name}"


def ssh_key(path: Path, *, passphrase: str = "") -> str:
    """Make a key and return its private part. The public one is beside it."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path.read_text()


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """Start one on a free port. For tests with the mark `sshd`."""
    own = folder / "sshd"
    own.mkdir(mode=0o700)
    ssh_key(own / "host_key")
    private_key = ssh_key(own / "user_key")
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (own / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {own}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {own}/user_key.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"SetEnv PATH={own}/programs:{os.environ['PATH']}\n"
    )
    (own / "programs").mkdir()
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # made by its service elsewhere
    assert machine.SSHD
    command = [machine.SSHD, "-D", "-e", "-f", str(own / "config")]
    with (own / "log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            _wait_for(port)
            host_key = " ".join((own / "host_key.pub").read_text().split()[:2])
            yield SshServer(folder, port, private_key, f"[127.0.0.1]:{port} {host_key}\n", own / "programs")
        finally:
            process.terminate()


def _wait_for(port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "sshd does not listen"
            time.sleep(0.02)


@contextmanager
def silent_server() -> Iterator[int]:
    """Listen on a port, take connections, and never say a word."""
    with create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
