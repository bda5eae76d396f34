"""The environment of a sandboxed process: a list of allowed variables, not the portal's environment."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

_FALLBACK_PATH = "/usr/local/bin:/usr/bin:/bin"


def clean_env(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment: search path, language, time zone, user and `home`.

    What is installed into the home (`pip install --user`, `uv tool install`, `pipx`) is found first, as in a
    login shell. `extra` is added and takes precedence; its PATH follows that of the home. No other variable
    of the portal is passed on, so that no key, database URL or secret can leak because a list of forbidden
    names lacks it.
    """
    names = [name for name in os.environ if name in ("LANG", "TZ") or name[:3] == "LC_"]
    user = _user_name()
    return {
        "LANG": "C.UTF-8",
        **{name: os.environ[name] for name in names},
        "TERM": "dumb",
        "HOME": str(home),
        "TMPDIR": "/tmp",  # noqa: S108 (a private tmpfs in the sandbox)
        "USER": user,
        "LOGNAME": user,
        # Hard links between the mounts of a sandbox fail. uv would warn about that each time, and copy.
        "UV_LINK_MODE": "copy",
        **extra,
        "PATH": f"{home}/.local/bin:{extra.get('PATH') or search_path()}",
    }


def search_path() -> str:
    """Return the portal's PATH without relative folders, so that a sandboxed process does not run `./git`.

    Missing folders are left out, and folders that this user may not search, for example of root after `su`.
    """
    folders = [part for part in os.environ.get("PATH", "").split(os.pathsep) if Path(part).is_absolute()]
    folders = [one for one in folders if os.path.isdir(one) and os.access(one, os.X_OK)]  # noqa: PTH112 (Path.is_dir raises)
    return os.pathsep.join(folders) or _FALLBACK_PATH


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a user id that has no name
        return str(os.getuid())
