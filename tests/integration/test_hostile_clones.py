"""R1, R3: whatever an agent does to its clone's git, the branch holds the files that the checks saw."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tasks_app.core.phases import Phase
from tasks_app.models import Task, paths
from tests.fake_script import Turn, say, shell
from tests.runner import Runner

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once(on="sqlite")]

_ME = "-c user.name=a -c user.email=a@b"
_WORK = "mkdir -p src && echo work > src/work.txt && echo more >> README.md"
#: What an agent does beside its work, before (`%`: the work) or after it.
CASES = {
    "replace ref": f"%; git {_ME} commit -qam x; git replace HEAD HEAD^",
    "replaced blob": "%; git hash-object -w README.md; git replace -f $(git hash-object -w src/work.txt)"
    " $(echo other | git hash-object -w --stdin)",
    "grafts": f"%; git {_ME} commit -qam x; mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts",
    "sparse checkout": "git sparse-checkout set --no-cone /src 2>/dev/null; git sparse-checkout disable;"
    " git config core.sparseCheckout true; mkdir -p .git/info; echo /src > .git/info/sparse-checkout; %",
    "skip-worktree": "git update-index --skip-worktree README.md; %",
    "assume-unchanged": "git update-index --assume-unchanged README.md; %",
    "split index": "git update-index --split-index; %; git add .; git update-index --split-index",
    "index version 4": "git update-index --index-version 4; %; git add .",
    "untracked cache": "git config core.untrackedCache true; git status >/dev/null; %",
    "fsmonitor": "git config core.fsmonitor 'echo x; touch /tmp/never; #'; %",
    "commondir": "echo /nowhere > .git/commondir; %",
    "alternates": "mkdir -p .git/objects/info; echo /nowhere > .git/objects/info/alternates; %",
    "export-ignore": "%; echo '* export-ignore export-subst' > .gitattributes",
    "clean filter": "%; git config filter.x.clean 'echo faked'; mkdir -p .git/info;"
    " echo '* filter=x' > .git/info/attributes",
    "exclude": "%; mkdir -p .git/info; echo '*' > .git/info/exclude",
    "excludesFile": "%; echo '*' > .git/mine; git config core.excludesFile .git/mine",
    "ignorecase": "git config core.ignoreCase true; %; echo lower > src/WORK.txt",
    "autocrlf": "git config core.autocrlf true; %; printf 'a\\r\\nb\\r\\n' > src/dos.txt",
    "filemode": "git config core.fileMode false; %; chmod +x src/work.txt",
    "symlinks": "git config core.symlinks false; %; ln -s work.txt src/link",
    "worktree setting": "git config core.worktree /tmp; %",
    "bare": "%; git config core.bare true",
    "partial clone": "%; git config extensions.partialClone origin; git config remote.origin.promisor true",
    "unknown extension": "%; git config core.repositoryFormatVersion 1; git config extensions.nonsense true",
    "broken config": "%; echo '[[[' > .git/config",
    "config is a folder": "%; rm .git/config; mkdir .git/config",
    "hooks": "%; mkdir -p .git/hooks; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit;"
    " chmod +x .git/hooks/pre-commit",
    "odd names": "%; printf x > \"$(printf 'new\\nline')\"; printf y > \"$(printf 'a\\377b')\"",
    "locks": "%; touch .git/index.lock .git/HEAD.lock .git/config.lock",
    "detached": f"%; git checkout -q --detach; git {_ME} commit -qam detached",
    "unborn": "%; git symbolic-ref HEAD refs/heads/unborn",
    "orphan": f"%; git checkout -q --orphan other; git {_ME} commit -qm orphan",
    "merging": "%; git rev-parse HEAD > .git/MERGE_HEAD",
    "unmerged": "%; b=$(git rev-parse HEAD:README.md); printf '0 %s\\tREADME.md\\n100644 %s 1\\tREADME.md\\n"
    "100644 %s 2\\tREADME.md\\n' $(printf %040d 0) $b $b | git update-index --index-info",
    "head is a link": "%; cp .git/HEAD .git/H; rm .git/HEAD; ln -s H .git/HEAD",
    "objects removed": "%; rm -rf .git/objects",
    "objects emptied": '%; find .git/objects -type f -exec sh -c \'chmod u+w "$1"; : > "$1"\' _ {} \\;',
    "refs is a file": "%; rm -rf .git/refs; echo > .git/refs",
    "reftable": "%; rm -rf .git; git init -q --ref-format=reftable . 2>/dev/null || git init -q .",
    "sha256": "%; rm -rf .git; git init -q --object-format=sha256 .",
    "removed": "%; rm -rf .git",
    "moved": "%; mv .git ../moved-git-$$ 2>/dev/null || rm -rf .git; echo gitdir: /nowhere > .git",
    "closed": "%; chmod 000 .git",
}


def git(task: Task, *words: str) -> bytes:
    bare = paths.repository(task.project).path
    return subprocess.run(["git", *words], cwd=bare, check=True, capture_output=True).stdout


def files_of(task: Task) -> dict[bytes, bytes]:
    """The published files with their contents; a link's is where it leads to."""
    names = git(task, "ls-tree", "-r", "--name-only", "-z", task.branch).split(b"\0")[:-1]
    return {name: git(task, "show", f"{task.branch}:{os.fsdecode(name)}") for name in names}


def files_in(task: Task) -> dict[bytes, bytes]:
    top = paths.workspace(task).path
    found = {}
    for where, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != ".git"]
        for path in (Path(where) / name for name in names if name != ".git"):
            content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
            found[os.fsencode(path.relative_to(top))] = content
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_branch_holds_what_the_workspace_holds(runner: Runner, case: str) -> None:
    project = runner.project(**{"README.md": "# Read me\n"})
    (before, after) = CASES[case].split("%", 1)
    play = [Turn(calls=(shell(f"{before}{_WORK}{after}"),)), say("Done.")]
    task = runner.advance(runner.task(play, project=project))
    assert task.phase == Phase.DONE, task.failure
    assert files_of(task) == files_in(task)
    assert files_of(task)[b"README.md"] == b"# Read me\nmore\n" and b"src/work.txt" in files_of(task)
    git(task, "fsck", "--connectivity-only")
    base = git(task, "merge-base", task.base_commit, task.branch).decode().strip()
    assert base == task.base_commit
