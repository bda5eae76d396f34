"""A small OpenID Connect provider on loopback: real HTTP, codes with PKCE, signed tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "herder", "s3cret"
T = TypeVar("T")


@dataclass
class Provider:
    """`person` is who is logged in there; `broken` says what is wrong with its answers.

    `userinfo` replaces claims of the person at that address only, not in the signed token.
    """

    address: str
    person: dict[str, Any] = field(default_factory=dict)
    broken: str = ""
    userinfo: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def configuration(self) -> dict[str, Any]:
        names = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        return {
            "issuer": self.address,
            "jwks_uri": f"{self.address}/jwks",
            **{f"{name}_endpoint": f"{self.address}/{path}" for name, path in names.items()},
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser goes back to."""
        assert (asked["client_id"], asked["response_type"]) == (CLIENT_ID, "code")
        assert asked["code_challenge_method"] == "S256" and "openid" in asked["scope"].split()
        if self.broken == "refused":
            return f"{asked['redirect_uri']}?{urlencode({'error': 'access_denied', 'state': asked['state']})}"
        code = secrets.token_urlsafe(8)
        self.codes[code] = asked["code_challenge"]
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, asked: dict[str, str]) -> dict[str, Any] | None:
        challenge = self.codes.pop(asked.get("code", ""), None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(asked.get("code_verifier", "").encode()).digest())
        known = asked.get("client_secret") == CLIENT_SECRET and asked.get("client_id") == CLIENT_ID
        if (
            challenge is None
            or proof.decode().rstrip("=") != challenge
            or not known
            or self.broken == "token"
        ):
            return None
        audience = "somebody else" if self.broken == "audience" else CLIENT_ID
        now = int(time.time())
        claims = {**self.person, "iss": self.address, "aud": audience, "iat": now, "exp": now + 300}
        signed = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "one"})
        return {"access_token": "granted", "token_type": "Bearer", "id_token": signed}

    def jwks(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, asked = urlsplit(self.path).path, flat(urlsplit(self.path).query)
            if path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(asked))
                self.end_headers()
            elif path == "/.well-known/openid-configuration":
                self._answer({} if provider.broken == "configuration" else provider.configuration())
            elif path == "/jwks":
                self._answer(provider.jwks())
            else:
                allowed = self.headers["Authorization"] == "Bearer granted"
                found = {**provider.person, **provider.userinfo}
                self._answer(found if allowed and provider.broken != "userinfo" else None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(provider.token(flat(body)))

        def _answer(self, value: dict[str, Any] | None) -> None:
            body = json.dumps({"error": "invalid"} if value is None else value).encode()
            self.send_response(400 if value is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def flat(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}


@contextmanager
def provider() -> Iterator[Provider]:
    with served(Provider, _handler) as found:
        yield found


@contextmanager
def served(make: Callable[[str], T], handler: Callable[[T], type[BaseHTTPRequestHandler]]) -> Iterator[T]:
    """What is made from the server's address, and answers there while the context is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    found = make(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = handler(found)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
