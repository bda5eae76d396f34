"""Calls of a forge: whether one is signed with the secret, and which pull requests it is about."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

from tasks_app.forges.port import ForgeKind

#: How GitLab wants a secret to begin that signs calls; the others take it as it is.
SECRET_PREFIX = "whsec_"  # noqa: S105 - not the secret
_LARGEST_NUMBER = 2**31 - 1
#: Where payloads of the forges have the number of a pull request, or its newest commit.
_NUMBERS = (
    ("number",),
    ("pull_request", "number"),
    ("issue", "number"),
    ("merge_request", "iid"),
    ("object_attributes", "iid"),
    *((run, "pull_requests", "number") for run in ("check_run", "check_suite", "workflow_run")),
)
_COMMITS = (
    ("sha",),
    ("object_attributes", "sha"),
    *((run, "head_sha") for run in ("check_run", "check_suite", "workflow_run")),
)


@dataclass(frozen=True)
class AffectedPullRequests:
    """The pull requests and commits that a call names. Only the secret makes it trustworthy."""

    numbers: frozenset[int]
    commits: frozenset[str]


def is_signed(kind: ForgeKind, secret: str, body: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether the sender knows the secret. Comparisons take the same time for any text."""
    if kind == ForgeKind.GITHUB:
        return _same(headers.get("X-Hub-Signature-256", ""), f"sha256={_hex(secret, body)}")
    if kind == ForgeKind.FORGEJO:
        given = headers.get("X-Forgejo-Signature") or headers.get("X-Gitea-Signature", "")
        return _same(given, _hex(secret, body))
    return _same(headers.get("X-Gitlab-Token", ""), secret) or _is_standard(secret, body, headers)


def _is_standard(secret: str, body: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether the signature follows standardwebhooks.com, which newer GitLab can send."""
    key = b64decode(secret.removeprefix(SECRET_PREFIX))
    names = ("webhook-id", "webhook-timestamp")
    signed = b".".join([*(headers.get(name, "").encode() for name in names), body])
    expected = f"v1,{b64encode(hmac.digest(key, signed, sha256)).decode()}"
    return any(_same(one, expected) for one in headers.get("webhook-signature", "").split(" ")[:10])


def _hex(secret: str, body: bytes) -> str:
    return hmac.digest(secret.encode(), body, sha256).hex()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def affected_pull_requests(body: bytes) -> AffectedPullRequests:
    """Return the pull requests and commits that the call names; empty for a body of another form."""
    try:
        if body.startswith(b"payload="):  # GitHub can send JSON, or a form that has it
            body = parse_qs(body.decode(), max_num_fields=10)["payload"][0].encode()
        payload = json.loads(body)
    except (ValueError, KeyError, RecursionError):
        payload = None
    numbers = {one for path in _NUMBERS for one in _at(payload, path) if type(one) is int}
    commits = {one for path in _COMMITS for one in _at(payload, path) if isinstance(one, str)}
    return AffectedPullRequests(
        frozenset(one for one in numbers if 0 < one <= _LARGEST_NUMBER),
        frozenset(one for one in commits if 40 <= len(one) <= 64 and one.isalnum() and one.isascii()),
    )


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values at the path, in each entry of a list on the way."""
    if isinstance(value, list):
        for one in value[:100]:
            yield from _at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])
