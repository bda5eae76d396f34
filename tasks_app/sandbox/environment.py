"""The environment of a guest: a list of what it may know, never the portal's own minus a few names."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

_FALLBACK_PATH = "/usr/local/bin:/usr/bin:/bin"


def clean_env(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """All that a guest process is told: where programs are, its language, time zone and `home`.

    `extra` is added on top and wins. Nothing else of the portal's environment passes, so that no
    key, database address or secret can leak by being forgotten in a list of forbidden names.
    """
    return {
        "PATH": search_path(),
        **_language(),
        "TERM": "dumb",
        "HOME": str(home),
        "TMPDIR": "/tmp",  # noqa: S108 (a private tmpfs in the sandbox)
        **_identity(),
        **extra,
    }


def search_path() -> str:
    """The portal's PATH without relative and missing folders: a guest must not run `./git`.

    Nor with those of others, as of root after `su`, which this user cannot look into.
    """
    folders = [part for part in os.environ.get("PATH", "").split(os.pathsep) if Path(part).is_absolute()]
    return os.pathsep.join(part for part in folders if _can_be_searched(part)) or _FALLBACK_PATH


def _can_be_searched(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.X_OK)  # noqa: PTH112 (Path.is_dir raises)


def _language() -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name in ("LANG", "TZ") or name[:3] == "LC_"}
    return {"LANG": "C.UTF-8", **known}


def _identity() -> dict[str, str]:
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that has no name
        name = str(os.getuid())
    return {"USER": name, "LOGNAME": name}
