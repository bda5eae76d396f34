"""Places on loopback to which messages are sent: a web server, with or without TLS, and a mail server."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedRWPair
from pathlib import Path
from time import sleep

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Receiver:
    """Notes each request; answers `status` with `body`, after `delay` seconds."""

    status: int = 200
    body: bytes = b""
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    location: str = ""
    delay: float = 0.0

    def address(self, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}/hook?a=1"


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no traceback."""


@contextmanager
def receiving(*, status: int = 200, tls: Path | None = None) -> Iterator[Receiver]:
    receiver = Receiver(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            receiver.posts.append((self.path, dict(self.headers), body))
            sleep(receiver.delay)
            self.send_response(receiver.status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.send_header("Content-Length", str(len(receiver.body)))
            self.end_headers()
            self.wfile.write(receiver.body)

        do_GET = do_PUT = do_POST

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = _QuietServer(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certificate(folder: Path, *, name: str) -> Path:
    """A key and a certificate that signs itself, for this host name, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@dataclass
class MailServer:
    """As much of SMTP as one mail needs; `refuses` is said to every recipient."""

    port: int = 0
    refuses: str = ""
    mails: list[tuple[str, str]] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as line:
                self._talk(line)

    def _talk(self, line: BufferedRWPair) -> None:
        recipient = ""
        self._say(line, "220 here")
        for raw in line:
            word = raw.decode().strip()
            if word.upper().startswith("RCPT"):
                recipient = word.partition("<")[2].partition(">")[0]
                self._say(line, self.refuses or "250 ok")
            elif word.upper() == "DATA":
                self._say(line, "354 go on")
                text = []
                while (part := line.readline().decode()) != ".\r\n":
                    text.append(part)
                self.mails.append((recipient, "".join(text)))
                self._say(line, "250 taken")
            elif word.upper() == "QUIT":
                self._say(line, "221 bye")
                return
            else:
                self._say(line, "250 ok")

    @staticmethod
    def _say(line: BufferedRWPair, text: str) -> None:
        line.write(f"{text}\r\n".encode())
        line.flush()


@contextmanager
def mail_server(*, refuses: str = "") -> Iterator[MailServer]:
    server = MailServer(refuses=refuses)
    listener = socket.create_server(("127.0.0.1", 0))
    server.port = listener.getsockname()[1]
    thread = threading.Thread(target=server.serve, args=[listener], daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
