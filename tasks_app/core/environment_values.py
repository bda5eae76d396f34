"""The values of environment variables: how their texts are read, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import parseaddr
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import dj_database_url
from pydantic import BaseModel, BeforeValidator, Field

from tasks_app.core.labels import labels_from_text


def _from_text(read: Callable[[str], Any]) -> BeforeValidator:
    """Return a validator that reads a text. Other values, such as defaults, are taken as they are."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


def _entries(text: str, separator: str = ";") -> list[str]:
    return [entry.strip() for entry in text.split(separator) if entry.strip()]


class Bind(BaseModel):
    host: str
    port: int = Field(ge=0, le=65535)

    @property
    def here(self) -> str:
        """The host for requests from this machine; 0.0.0.0 and :: become loopback."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)

    @property
    def address(self) -> str:
        """The URL for a browser on this machine."""
        host = self.here
        if ":" in host:
            host = f"[{host}]"
        return f"http://{host}:{self.port}"


def _bind(value: str) -> Bind:
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be HOST:PORT, for example 127.0.0.1:8000")
    return Bind(host=host.strip("[]"), port=int(port))


BindAddress = Annotated[Bind, _from_text(_bind)]


def _database(value: str) -> str:
    if urlsplit(value).scheme not in {"postgres", "postgresql", "sqlite"}:
        raise ValueError("must be a postgresql:// or sqlite:// address")
    try:
        dj_database_url.parse(value)
    except Exception as error:
        raise ValueError(f"is not a database address ({error})") from error
    return value


DatabaseUrl = Annotated[str, BeforeValidator(_database)]


def _redis(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("must be a redis:// address")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"is not a Redis address ({error})") from error
    return value


RedisUrl = Annotated[str, BeforeValidator(_redis)]


def web_url(value: str) -> str:
    """Return the URL without a slash at the end. Raises ValueError if it is not one of the web."""
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http:// or https:// address")
    return value.rstrip("/")


WebUrl = Annotated[str, BeforeValidator(web_url)]

#: Names that browsers send as `Host` and Django accepts there; without a wildcard.
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def public_url(value: str) -> str:
    """Return the URL of the portal as browsers write its origin, such as https://herder.example.org.

    Raises ValueError for one with which pages, forms or links would not work: below a path, with a user or a
    query, or with a name or port that no browser sends.
    """
    parts = urlsplit(web_url(value.strip()))
    if "@" in parts.netloc:
        raise ValueError("must be without a user and a password")
    if parts.path.strip("/"):
        raise ValueError("must be without a path: the portal needs a host name of its own")
    if "?" in value or "#" in value:
        raise ValueError("must be without a query and a fragment")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("must have a port from 1 to 65535, or none")
    host = _host_of_browsers(parts.hostname or "", is_ipv6=parts.netloc.startswith("["))
    if port in (None, {"http": 80, "https": 443}[parts.scheme]):
        return f"{parts.scheme}://{host}"
    return f"{parts.scheme}://{host}:{port}"


def _host_of_browsers(host: str, *, is_ipv6: bool) -> str:
    """Return the host as browsers send it. Raises ValueError for one that they do not send."""
    if is_ipv6:
        return f"[{IPv6Address(host)}]"
    host = host.removesuffix(".")
    if not host.isascii():
        raise ValueError(f"must have the host name as browsers send it: {host.encode('idna').decode()}")
    if not _HOST_NAME.fullmatch(host) or ".." in host:
        raise ValueError("must have a host name of letters, digits, '-' and '.'")
    return host


PublicUrl = Annotated[str, BeforeValidator(public_url)]


class MailServer(BaseModel):
    """The mail server. `tls` means STARTTLS, `ssl` means TLS from the start."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    tls: bool = False
    ssl: bool = False


#: Default ports.
_MAIL_PORTS = {"smtp": 25, "smtp+tls": 587, "smtps": 465}


def _mail_server(value: str) -> MailServer:
    parts = urlsplit(value)
    if parts.scheme not in _MAIL_PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError("must be smtp://, smtp+tls:// or smtps://, as in smtp+tls://USER:PASSWORD@HOST:587")
    try:
        port = parts.port or _MAIL_PORTS[parts.scheme]
    except ValueError as error:
        raise ValueError(f"is not the address of a mail server ({error})") from error
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    tls, ssl = parts.scheme == "smtp+tls", parts.scheme == "smtps"
    return MailServer(host=parts.hostname, port=port, user=user, password=password, tls=tls, ssl=ssl)


MailServerUrl = Annotated[MailServer, _from_text(_mail_server)]


def _sender(value: str) -> str:
    address = parseaddr(value)[1]
    if "@" not in address or any(sign in value for sign in "\r\n"):
        raise ValueError("must be an e-mail address, as in Cat Herder <herder@example.org>")
    return value


Sender = Annotated[str, BeforeValidator(_sender)]


def _git_filters(value: str) -> tuple[tuple[str, str], ...]:
    pairs = [entry.partition("=") for entry in _entries(value)]
    found = tuple((name.strip(), command.strip()) for name, _, command in pairs)
    for name, command in found:
        if not re.fullmatch(r"[A-Za-z0-9][\w-]*", name) or not command.isprintable():
            raise ValueError("must be lfs, or NAME=COMMAND for other filters, with ; between them")
        if not command and name != "lfs":
            raise ValueError(f"must say which command the filter {name} is, as in {name}=COMMAND")
    return found


#: Pairs of a filter's name and its clean command; an empty command means the known one.
GitFilters = Annotated[tuple[tuple[str, str], ...], _from_text(_git_filters)]


#: Names of toolchains.
TOOLCHAIN = r"[a-z][a-z0-9+.-]{0,39}"


def _toolchains(value: str) -> tuple[tuple[str, str], ...]:
    pairs = [entry.partition("=") for entry in _entries(value)]
    found = tuple((name.strip(), folder.strip()) for name, _, folder in pairs)
    for name, folder in found:
        plain = folder.startswith("/") and folder.strip("/") and ".." not in folder.split("/")
        if not plain or not re.fullmatch(TOOLCHAIN, name):
            raise ValueError("must be NAME=FOLDER with ; between them, as in go=/srv/go; android=/srv/sdk")
    return found


#: Pairs of a toolchain's name and its folder.
ListedToolchains = Annotated[tuple[tuple[str, str], ...], _from_text(_toolchains)]


#: A folder of the worker's machine that a project may name: absolute, or in the home of the worker's user.
READABLE = r"(/|~/)[^,;\n\r\0]{1,200}"


def is_readable_folder(text: str) -> bool:
    """Return whether the text is a folder in the form of READABLE, without `..`."""
    plain = re.fullmatch(READABLE, text) and text.strip("/~ ") and ".." not in text.split("/")
    return bool(plain)


def _readable(value: str) -> tuple[str, ...]:
    folders = tuple(dict.fromkeys(entry.rstrip("/") for entry in _entries(value)))
    if not all(map(is_readable_folder, folders)):
        raise ValueError("must be folders with ; between them, as in /srv/datasets; ~/.m2/repository")
    return folders


ReadableFolders = Annotated[tuple[str, ...], _from_text(_readable)]


_REMOTE = re.compile(r"https://|(?:https|ssh)://[^/\s]+(?:/\S*)?|[\w.-]+@[\w.-]+:\S*", re.ASCII)


def _submodules(value: str) -> tuple[str, ...]:
    places = tuple(_entries(value, ","))
    for place in places:
        is_folder = place.startswith("/") and place.strip("/")
        if ".." in place.split("/") or not (is_folder or _REMOTE.fullmatch(place)):
            raise ValueError(
                "must be folders and https or ssh URLs, as in /srv/git, https://git.example.org/acme;"
                " https:// alone stands for all hosts"
            )
    return places


SubmoduleOrigins = Annotated[tuple[str, ...], _from_text(_submodules)]


def _otlp_url(value: str) -> str:
    """Keep a slash at the end: the URL for traces is used as it is."""
    web_url(value)
    return value


TracesUrl = Annotated[str, BeforeValidator(_otlp_url)]


def _issuer(value: str) -> str:
    """Require TLS or this machine, because tokens are fetched from it."""
    parts = urlsplit(web_url(value))
    if parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        raise ValueError("must be an https:// address")
    return value.rstrip("/")


IssuerUrl = Annotated[str, BeforeValidator(_issuer)]


LongSecret = Annotated[str, Field(min_length=32)]


#: A worker token is PREFIX, the name of its worker host, a dot, and the secret.
WORKER_TOKEN_PREFIX = "cathw_"  # noqa: S105 - not a secret itself
WORKER_NAME = r"[a-z0-9](?:[a-z0-9-]{0,28}[a-z0-9])?"


def _worker_token(value: str) -> str:
    if not re.fullmatch(rf"{WORKER_TOKEN_PREFIX}{WORKER_NAME}\.[\w-]{{43}}", value, re.ASCII):
        raise ValueError("must be what `cat-herder worker_token NAME` printed")
    return value


WorkerTokenText = Annotated[str, BeforeValidator(_worker_token)]


def _networks(value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(map(ip_network, _entries(value, ",")))
    except ValueError as error:
        raise ValueError(f"must be networks as in 10.1.0.0/16, fd00::/8 ({error})") from error


Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], _from_text(_networks)]


Labels = Annotated[tuple[str, ...], _from_text(labels_from_text)]


def _parse_size(value: str) -> int:
    """Parse a size: `4G`, `512M`, or 0 for no limit."""
    found = re.fullmatch(r"(\d{1,15})(?:\s*([KMGT])(?:i?B)?)?", value.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError("must be a size as in 4G or 512M, or 0 for no limit")
    return int(found[1]) << 10 * " KMGT".index((found[2] or " ").upper())


Size = Annotated[int, _from_text(_parse_size), Field(ge=0)]
