"""Messages to the agent about a merge whose conflicts it resolves (V6)."""

from __future__ import annotations

from collections.abc import Sequence

#: Files that are told by name, of those with markers and of those without, which the agent must name.
_LISTED = 50
_LISTED_WITHOUT_MARKERS = 500


def merge_request(branch: str, target: str, files: Sequence[str], unmarked: Sequence[str]) -> str:
    """Ask for the merge of the commit `target` of `branch`, which conflicts in these files.

    `unmarked` are those among them that have no conflict markers.
    """
    without_markers = (
        f"\n\n{_UNMARKED}\n\n{_list_of(unmarked, most=_LISTED_WITHOUT_MARKERS)}" if unmarked else ""
    )
    return _REQUEST.format(
        branch=branch, target=target, files=_list_of(files, most=_LISTED), without_markers=without_markers
    )


def unresolved_merge(marked: Sequence[str], unmarked: Sequence[str]) -> str:
    """Ask for what is left: files with conflict markers, and files without that were not mentioned."""
    parts = ((_LEFT, marked, _LISTED), (_UNMARKED, unmarked, _LISTED_WITHOUT_MARKERS))
    return "\n\n".join(f"{text}\n\n{_list_of(names, most=most)}" for text, names, most in parts if names)


def in_one_line(text: str) -> str:
    """Return the text with one blank for blanks and line ends, as the names of files are told."""
    return " ".join(text.split())


def _list_of(names: Sequence[str], *, most: int) -> str:
    listed = [f"* {in_one_line(name)}" for name in names[:most]]
    if len(names) > most:
        listed.append(f"* and {len(names) - most} more")
    return "\n".join(listed)


_LEFT = "Resolve the conflicts in these files, and remove the markers:"
_UNMARKED = """\
These files conflict and have no markers, because they are binary, or because one side deleted, moved or \
replaced them. Each is there as one side left it. Change it, delete it, or say in your last message, with \
its path, that it is right as it is; otherwise it counts as not resolved:"""


_REQUEST = """\
Merge the branch {branch} (commit {target}) into this work.

The merge has been started: the workspace has the files of both sides, and these conflict:

{files}{without_markers}

Resolve each conflict so that what both sides wanted is kept, and remove all conflict markers. Then make \
sure that the checks pass. You need not commit: your work is recorded as the merge commit. Files that git \
ignores, such as installed packages, are not in the workspace any more."""
