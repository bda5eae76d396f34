"""What of GitHub a login needs, on loopback: the shapes are those of its OAuth and REST documentation."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.oidc import flat

CLIENT_ID, CLIENT_SECRET = "Iv1.abc", "s3cret"


@dataclass
class GitHub:
    """`person` and `emails` are what its API says of who is logged in there; None for an answer of 404."""

    address: str
    person: dict[str, Any] = field(default_factory=dict)
    emails: list[dict[str, Any]] | None = field(default_factory=list)
    codes: set[str] = field(default_factory=set)

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser goes back to."""
        assert asked["client_id"] == CLIENT_ID and "user:email" in asked["scope"].split()
        code = secrets.token_urlsafe(8)
        self.codes.add(code)
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, asked: dict[str, str]) -> dict[str, Any]:
        """GitHub says 200 to a bad code as well."""
        known = (asked.get("client_id"), asked.get("client_secret")) == (CLIENT_ID, CLIENT_SECRET)
        if not known or asked.get("code") not in self.codes:
            return {"error": "bad_verification_code"}
        self.codes.discard(asked["code"])
        return {"access_token": "gho_granted", "scope": "user:email", "token_type": "bearer"}


def handler(hub: GitHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, asked = urlsplit(self.path).path, flat(urlsplit(self.path).query)
            allowed = self.headers["Authorization"] == "token gho_granted"
            if path == "/login/oauth/authorize":
                self.send_response(302)
                self.send_header("Location", hub.authorize(asked))
                self.end_headers()
            elif path == "/api/v3/user" and allowed:
                self._answer(hub.person)
            elif path == "/api/v3/user/emails" and allowed and hub.emails is not None:
                self._answer(hub.emails)
            else:
                self._answer({"message": "Not Found"}, status=404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            assert urlsplit(self.path).path == "/login/oauth/access_token"
            self._answer(hub.token(flat(body)))

        def _answer(self, value: Any, status: int = 200) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
