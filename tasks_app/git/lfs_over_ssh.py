"""Where an ssh server takes contents of Git LFS: at an https endpoint that it names when asked over ssh.

The program at the server is `git-lfs-authenticate`. Its answer has headers that let in whoever sends them, so
they are a secret like the credential itself.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tasks_app.core.errors import BadInput

_LONGEST_URL = 2000
_MOST_HEADERS = 20
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,10000}")
#: What a URL has without user name, query, and what ends a line, a section or a key of git's settings.
_PLAIN_URL = re.compile(r"https://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~!$&'()*+,;:@%/-]*)?")


@dataclass(frozen=True)
class LfsEndpoint:
    """An https URL that takes contents from whoever sends the headers, which are names and values."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def settings(self) -> str:
        """A file of git's settings with which the headers are sent to this endpoint and to nobody else."""
        lines = [f"\textraHeader = {_quoted(f'{name}: {value}')}\n" for name, value in self.headers]
        return f"[http {_quoted(self.url)}]\n{''.join(lines)}"

    @property
    def secrets(self) -> list[str]:
        """The values of the headers, and their words: servers say `Basic` or `RemoteAuth` before a token."""
        values = [value for _, value in self.headers]
        return [*values, *(word for value in values for word in value.split())]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse_endpoint(answer: bytes) -> LfsEndpoint:
    """Return what `git-lfs-authenticate` answered. Raises BadInput, without a part of the answer.

    The URL must be https, so that the headers are sent encrypted and to a host with a valid certificate.
    """
    try:
        values: Any = json.loads(answer)
        url, headers = values["href"], values.get("header") or {}
        pairs = tuple((str(name), str(value)) for name, value in headers.items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadInput("its answer is not what Git LFS expects") from None
    if not isinstance(url, str) or len(url) > _LONGEST_URL or not _PLAIN_URL.fullmatch(url):
        raise BadInput("it names an endpoint that is no https URL, or has a user name or a query")
    valid = (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) for name, value in pairs)
    if len(pairs) > _MOST_HEADERS or not all(valid):
        raise BadInput("it names headers that cannot be sent")
    return LfsEndpoint(url, pairs)


def ssh_address(url: str) -> tuple[list[str], str]:
    """Return the arguments of ssh that name the server of an ssh URL, and the repository's path there."""
    if "://" not in url:
        server, _, path = url.partition(":")
        return ["--", server], path
    parts = urlsplit(url)
    port = ["-p", str(parts.port)] if parts.port else []
    user = f"{unquote(parts.username)}@" if parts.username else ""
    path = unquote(parts.path)
    return [*port, "--", f"{user}{parts.hostname}"], path.removeprefix("/") if path.startswith("/~") else path


def command_for_upload(path: str) -> str:
    """Return the command that asks the server where the repository's contents are uploaded to."""
    return f"git-lfs-authenticate {shlex.quote(path)} upload"


#: Settings for a server that takes contents over ssh itself, by `git-lfs-transfer`.
ALL_OVER_SSH = ("lfs.sshtransfer=always", "lfs.ssh.automultiplex=false", "lfs.concurrenttransfers=2")
# git-lfs 3.3 knows no `sshtransfer`: it would ask for an endpoint, and take one that is not https.
_NO_ENDPOINT = (
    'case "$*" in *git-lfs-authenticate*) echo "the server has no git-lfs-transfer" >&2; exit 1;; esac; '
    'exec {ssh} "$@"'
)


def without_endpoints(ssh: str) -> str:
    """Return a command for ssh, made of another, that never asks the server for an endpoint."""
    return f"sh -c {shlex.quote(_NO_ENDPOINT.format(ssh=ssh))} ssh"
