"""From the URL of a repository to its forge: which kind it is, where its API is, its name there."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tasks_app.forges.port import ForgeKind

#: Hosts that everybody knows. For another host, the project's settings say what it is.
_KNOWN = {
    "github.com": ForgeKind.GITHUB,
    "gitlab.com": ForgeKind.GITLAB,
    "codeberg.org": ForgeKind.FORGEJO,
}
_API_PATHS = {ForgeKind.GITHUB: "/api/v3", ForgeKind.GITLAB: "/api/v4", ForgeKind.FORGEJO: "/api/v1"}


@dataclass(frozen=True)
class ForgeAddress:
    """Where pull requests of a repository are. `repository` is its path, such as `team/shop`.

    `fork`: the path of the repository that has the branches, if they are in a fork of it; else "".
    """

    kind: ForgeKind
    api_url: str
    repository: str
    fork: str = ""


def forge_address(url: str, *, kind: str = "", api_url: str = "") -> ForgeAddress | None:
    """Return where the pull requests of the repository at `url` are; None if it is at no known forge.

    `kind` and `api_url` are the settings of the project, "" for those that follow from the URL.
    """
    host, path = _host_and_path(url)
    known = _KNOWN.get(host)
    if not path or not (kind or known):
        return None
    found = ForgeKind(kind) if kind else known
    if found is None or path.count("/") < 1 or (found != ForgeKind.GITLAB and path.count("/") > 1):
        return None
    return ForgeAddress(found, (api_url or _api_url(found, host, url)).rstrip("/"), path)


def _api_url(kind: ForgeKind, host: str, url: str) -> str:
    if host == "github.com":
        return "https://api.github.com"
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.scheme == "https" and parts.port else ""
    return f"https://{host}{port}{_API_PATHS[kind]}"


def _host_and_path(url: str) -> tuple[str, str]:
    """Return host and path of an https or ssh URL, also of `git@HOST:PATH`; two empty texts for a folder."""
    if "://" in url:
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
    elif "@" in url.partition("/")[0] and ":" in url:
        host, _, path = url.partition("@")[2].partition(":")
    else:
        return "", ""
    return host.lower(), path.strip("/").removesuffix(".git")
