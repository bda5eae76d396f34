"""What the agent is told of a merge whose conflicts it resolves (SPEC V6)."""

from __future__ import annotations

from collections.abc import Sequence

#: Files that are told by name.
_LISTED = 50


def merge_request(branch: str, target: str, files: Sequence[str]) -> str:
    """Ask for the merge of the commit `target` of `branch`, which conflicts in these files."""
    listed = [f"* {' '.join(name.split())}" for name in files[:_LISTED]]
    if len(files) > _LISTED:
        listed.append(f"* and {len(files) - _LISTED} more")
    return _REQUEST.format(branch=branch, target=target, files="\n".join(listed))


_REQUEST = """\
Merge the branch {branch} (commit {target}) into this work.

The merge has been started: the workspace has the files of both sides, and these conflict:

{files}

Resolve each conflict so that what both sides wanted is kept, and remove all conflict markers. A file that \
one side deleted is there as the other side left it: keep it or delete it. Then make sure that the checks \
pass. You need not commit: your work is recorded as the merge commit. Files that git ignores, such as \
installed packages, are not in the workspace any more."""
