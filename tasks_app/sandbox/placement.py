"""Under which paths sandboxed processes see the folders of a data directory (M2).

Agents find their sessions by the path of their workspace, so it must be the same on every host. The data
directory of a worker host may be anywhere: its sandboxes show it under the path of the portal's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath

#: After as many links the kernel gives up, too.
_MOST_LINKS = 40


@dataclass(frozen=True)
class Placement:
    """What is below `folder` on this host is below `shown_at` in sandboxes; other paths are the same.

    Without a folder all paths are the same. "Inside" is what sandboxed processes call a path, "outside" what
    the host calls it.
    """

    folder: Path | None = None
    shown_at: Path | None = None

    @property
    def moves(self) -> bool:
        return self.folder != self.shown_at

    def inside(self, path: Path) -> Path:
        return _moved(path, self.folder, self.shown_at)

    def outside(self, path: Path) -> Path:
        return _moved(path, self.shown_at, self.folder)

    def real_path(self, path: Path) -> Path:
        """Follow the links of a path inside, as sandboxed processes do; return a path inside without links.

        As `os.path.realpath`, it accepts paths that do not exist.
        """
        if not self.moves:
            return Path(os.path.realpath(path))
        at, links = Path("/"), 0
        parts = list(reversed(_path_parts(path)))
        while parts:
            name = parts.pop()
            step = at.parent if name == ".." else at / name
            on_host = self.outside(step)
            if name != ".." and links < _MOST_LINKS and on_host.is_symlink():
                links += 1
                target = on_host.readlink()
                parts += reversed(_path_parts(target))
                at = Path("/") if target.is_absolute() else at
            else:
                at = step
        return at


#: Sandboxes show every path as it is.
UNCHANGED = Placement()


def _moved(path: Path, source: Path | None, target: Path | None) -> Path:
    if source is None or target is None or not path.is_relative_to(source):
        return path
    return target / path.relative_to(source)


def _path_parts(path: PurePath) -> tuple[str, ...]:
    return path.parts[1:] if path.is_absolute() else path.parts
