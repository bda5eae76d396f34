"""P9, R2, R4, R5: the portal's repository, a task's clone, its snapshots and diffs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tasks_app.core.errors import BadInput, CatHerderError, WorkspaceError
from tasks_app.git import ChangedFile, Repository, Workspace, branch_name, changed_files, diff, patch
from tasks_app.git.program import Git
from tasks_app.sandbox import Sandbox
from tests import machine
from tests.integration.git_repository import GitRepository


@dataclass(frozen=True)
class Desk:
    """A source, the portal's repository of it, and one task's clone as the agent sees it."""

    source: GitRepository
    repository: Repository
    workspace: Workspace
    sandbox: Sandbox
    home: Path
    base: str

    @property
    def agent(self) -> GitRepository:
        return GitRepository(self.workspace.path)

    def snapshot(self, label: str = "plan", *, publish: bool = False) -> str:
        return self.workspace.snapshot(label=label, sandbox=self.sandbox, publish=publish).commit

    def changes(self, label: str = "plan") -> tuple[ChangedFile, ...]:
        return changed_files(self.repository, base=self.base, head=self.snapshot(label))

    def write(self, name: str, text: str = "new\n") -> None:
        (self.workspace.path / name).write_text(text)


# Without a sandbox a command has the portal's own rights: these tests hold in the sandbox alone.
in_the_sandbox = pytest.mark.parametrize(
    "desk", [pytest.param("sandboxed", marks=pytest.mark.bubblewrap)], indirect=True
)


def on_desk(folder: Path, sandbox: Sandbox, base: str) -> Desk:
    source, data = folder / "source", folder / "data"
    repository = Repository(data / "repos" / "1.git", str(source))
    workspace = Workspace(data / "work" / "1", repository, branch_name("fix"))
    return Desk(GitRepository(source), repository, workspace, sandbox, data / "home", base)


@pytest.fixture(scope="session")
def desk_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A desk's folder and base, made once and copied: making it takes 30 processes."""
    folder = tmp_path_factory.mktemp("desk") / "template"
    source = GitRepository.make(folder / "source", a="one\n", b="two\n")
    (folder / "data" / "home").mkdir(parents=True)
    base = source.git("rev-parse", "HEAD")
    made = on_desk(folder, Sandbox(None), base)
    made.repository.fetch()
    made.workspace.create(base=made.repository.head("main"))
    return folder, base


@pytest.fixture(params=["open", pytest.param("sandboxed", marks=pytest.mark.bubblewrap)])
def desk(desk_template: tuple[Path, str], tmp_path: Path, request: pytest.FixtureRequest) -> Desk:
    template, base = desk_template
    shutil.copytree(template, tmp_path, symlinks=True, dirs_exist_ok=True)
    data = tmp_path / "data"
    sandbox = machine.sandbox(data) if request.param == "sandboxed" else Sandbox(None, "for this test")
    desk = on_desk(tmp_path, sandbox, base)
    desk.agent.git("update-index", "--refresh")  # it knows the files by inode
    return desk


def test_a_fetch_does_not_wait_for_ever_for_another(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks_app.git.repository.LOCK_SECONDS", 0.0)
    with desk.repository.lock_file.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(WorkspaceError, match="Somebody else is fetching"):
            desk.repository.fetch()
    desk.repository.fetch()


def test_fetching_follows_the_source(desk: Desk) -> None:
    newest = desk.source.commit(a="changed\n")
    desk.source.git("branch", "topic")
    desk.repository.fetch()
    assert desk.repository.head("main") == desk.repository.head("topic") == newest


def test_fetching_forgets_branches_that_are_gone_and_takes_rewritten_ones(desk: Desk) -> None:
    desk.source.git("branch", "topic")
    desk.repository.fetch()
    desk.source.git("branch", "-D", "topic")
    desk.source.git("commit", "--amend", "--quiet", "-m", "Other")
    desk.repository.fetch()
    assert desk.repository.head("main") == desk.source.git("rev-parse", "HEAD")
    with pytest.raises(WorkspaceError, match="has no branch topic"):
        desk.repository.head("topic")


def test_fetching_leaves_the_portals_branches_alone(desk: Desk) -> None:
    desk.write("a")
    snapshot = desk.snapshot()
    desk.workspace.publish(snapshot)
    desk.source.git("branch", "cat-herder/fix")
    desk.repository.fetch()
    assert desk.repository.commit("refs/heads/cat-herder/fix") == snapshot


def test_a_half_made_repository_is_replaced(desk: Desk, tmp_path: Path) -> None:
    fresh = tmp_path / "other.git.new"
    fresh.mkdir()
    (fresh / "rubbish").touch()
    repository = Repository(tmp_path / "other.git", str(desk.source.path))
    repository.fetch()
    assert repository.head("main") == desk.base


def test_a_source_that_is_gone_is_an_error_that_names_it(desk: Desk, tmp_path: Path) -> None:
    desk.source.path.rename(tmp_path / "moved")
    with pytest.raises(WorkspaceError, match=str(desk.source.path)):
        desk.repository.fetch()


@pytest.mark.parametrize("name", ["-x", "--upload-pack=x", "a..b", "a b", "", "x.lock", "a\nb", "a\0b"])
def test_a_branch_that_git_would_not_take_is_bad_input(desk: Desk, name: str) -> None:
    with pytest.raises(BadInput):
        desk.repository.head(name)


def test_a_clone_is_on_its_branch_and_shares_no_file_with_the_repository(desk: Desk) -> None:
    assert desk.agent.git("symbolic-ref", "HEAD") == "refs/heads/cat-herder/fix"
    assert desk.agent.git("rev-parse", "HEAD") == desk.base
    assert desk.agent.git("status", "--porcelain") == ""
    assert desk.agent.git("config", "--local", "user.name") == "Cat Herder"
    assert desk.agent.git("remote") == ""
    files = [path for path in (desk.workspace.path / ".git").rglob("*") if path.is_file()]
    assert files and all(path.stat().st_nlink == 1 for path in files)
    assert not (desk.workspace.path / ".git/objects/info/alternates").exists()


def test_creating_again_changes_nothing(desk: Desk) -> None:
    desk.write("a", "work\n")
    desk.workspace.create(base=desk.base)
    assert (desk.workspace.path / "a").read_text() == "work\n"


def test_a_half_made_clone_is_replaced(desk: Desk) -> None:
    other = Workspace(desk.workspace.path.with_name("2"), desk.repository, "cat-herder/other")
    (other.path.with_name("2.new") / ".git").mkdir(parents=True)
    other.create(base=desk.base)
    assert (other.path / "a").read_text() == "one\n"


def test_files_in_the_place_of_a_clone_are_not_overwritten(desk: Desk) -> None:
    other = Workspace(desk.workspace.path.with_name("2"), desk.repository, "cat-herder/other")
    other.path.mkdir()
    (other.path / "precious").touch()
    with pytest.raises(WorkspaceError, match="in the way"):
        other.create(base=desk.base)
    assert (other.path / "precious").exists()


def test_a_base_that_is_not_there_is_an_error(desk: Desk) -> None:
    other = Workspace(desk.workspace.path.with_name("2"), desk.repository, "cat-herder/other")
    with pytest.raises(WorkspaceError):
        other.create(base="0" * 40)
    with pytest.raises(WorkspaceError):
        other.create(base="--all")


def test_a_snapshot_has_tracked_and_untracked_files_and_not_the_ignored(desk: Desk) -> None:
    desk.write(".gitignore", "*.log\nout/\n")
    desk.write("x.log")
    desk.write("a", "one\nmore\n")
    desk.write("c")
    (desk.workspace.path / "b").unlink()
    assert desk.changes() == (
        ChangedFile(".gitignore", "A", 2, 0),
        ChangedFile("a", "M", 1, 0),
        ChangedFile("b", "D", 0, 1),
        ChangedFile("c", "A", 1, 0),
    )


def test_a_snapshot_leaves_the_agents_index_head_and_files_alone(desk: Desk) -> None:
    desk.write("a", "staged\n")
    desk.agent.git("add", "a")
    desk.write("a", "then changed\n")
    desk.write("c")
    before = (desk.workspace.path / ".git/index").read_bytes(), desk.agent.git("status", "--porcelain")
    refs = desk.agent.git("for-each-ref")
    desk.snapshot()
    assert (desk.workspace.path / ".git/index").read_bytes() == before[0]
    assert desk.agent.git("status", "--porcelain") == before[1] == "MM a\n?? c"
    assert desk.agent.git("rev-parse", "HEAD") == desk.base
    assert desk.agent.git("for-each-ref") == refs


def test_a_snapshot_is_on_top_of_what_the_agent_committed(desk: Desk) -> None:
    own = desk.agent.commit(c="mine\n")
    desk.write("d")
    snapshot = desk.snapshot()
    assert desk.repository.commit(f"{snapshot}^") == own
    assert [change.path for change in desk.changes("again")] == ["c", "d"]


def test_a_snapshot_of_a_clean_clone_is_its_head(desk: Desk) -> None:
    assert desk.snapshot() == desk.base


def test_a_snapshot_without_changes_costs_the_portal_two_processes_of_git(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run is recorded, and the next one waits for it; many only asked, looked or planned."""
    ran: list[str] = []
    run = Git.run

    def noted(git: Git, *words: str, **options: Any) -> bytes:
        ran.append(next(word for word in words if not word.startswith("-")))
        return run(git, *words, **options)

    monkeypatch.setattr(Git, "run", noted)
    assert desk.snapshot() == desk.base
    assert ran == ["for-each-ref", "update-ref"]
    desk.write("c")
    desk.snapshot("other")
    assert "index-pack" in ran


def test_one_snapshot_after_another_can_be_compared(desk: Desk) -> None:
    desk.write("c")
    first = desk.snapshot("plan")
    desk.write("d")
    second = desk.snapshot("implement")
    changes = changed_files(desk.repository, base=first, head=second)
    assert changes == (ChangedFile("d", "A", 1, 0),)


def test_a_file_added_against_the_ignore_list_is_recorded(desk: Desk) -> None:
    desk.write(".gitignore", "*.log\n")
    desk.write("x.log")
    desk.agent.git("add", "--force", "x.log")
    assert ChangedFile("x.log", "A", 1, 0) in desk.changes()


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
def test_a_mark_in_the_index_hides_no_change(desk: Desk, mark: str) -> None:
    """P7: the diff is held against the guard, so nothing may be missing from it."""
    desk.agent.git("update-index", mark, "a")
    desk.write("a", "changed\n")
    assert desk.changes() == (ChangedFile("a", "M", 1, 1),)


def test_a_published_snapshot_can_be_fetched_by_a_person(desk: Desk) -> None:
    desk.write("a", "done\n")
    desk.snapshot(publish=True)
    desk.source.git("fetch", "--quiet", str(desk.repository.path), "cat-herder/fix")
    assert desk.source.git("show", "FETCH_HEAD:a") == "done"


def _count_git(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often git was started since, by the portal and in the clone. Not through the sandbox's wall."""
    started, shim = path / "started", path / "shim" / "git"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\necho "$$" >>{started}\nexec {shutil.which("git")} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    return lambda: len(started.read_text().split())


@pytest.mark.parametrize("desk", ["open"], indirect=True)
def test_recording_takes_few_processes_however_often_it_was_done(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F: the next step's agent waits for it."""
    for number in range(3):
        desk.write("c", f"{number}\n")
        desk.snapshot(f"step-{number}")
    desk.write("c", "now\n")
    started = _count_git(tmp_path, monkeypatch)
    desk.snapshot("now", publish=True)
    assert started() <= 14


def test_recordings_of_years_do_not_stop_the_next(desk: Desk) -> None:
    """R5: what the portal has grows with each run of a long sequence; a command line does not."""
    refs = "refs/cat-herder/cat-herder/fix"
    stream = "".join(
        f"commit {refs}/old-{number}\ncommitter A <a@b> {number} +0000\ndata 0\n\n" for number in range(3500)
    )
    subprocess.run(
        ["git", "-C", str(desk.repository.path), "fast-import", "--quiet"],
        input=stream.encode(),
        check=True,
    )
    desk.write("c")
    assert [change.path for change in desk.changes()] == ["c"]


def _packs(repository: Repository) -> int:
    return len(list(repository.path.glob("objects/pack/*.pack")))


def test_what_many_recordings_left_is_put_together(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: and nothing of it is lost, not even what was taken but has no ref yet."""
    monkeypatch.setattr("tasks_app.git.repository.PACKS", 3)
    commits = []
    for number in range(4):
        desk.write("c", f"{number}\n")
        commits.append(desk.snapshot(f"step-{number}"))
    desk.repository.git.run("update-ref", "-d", "refs/cat-herder/cat-herder/fix/step-3")
    assert _packs(desk.repository) == 5, "what was fetched, and four recordings"
    with desk.repository.lock_file.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not desk.repository.tidy(), "somebody fetches"
    assert desk.repository.tidy()
    assert _packs(desk.repository) == 1
    assert not (desk.repository.path / "refs/cat-herder/cat-herder/fix/step-0").exists()
    for commit in commits:
        desk.repository.git.run("rev-list", "--objects", commit)
    assert not desk.repository.tidy(), "there is little to do"


ODD_NAMES = [
    "new\nline",
    "tab\there",
    "-dash",
    "--exec=x",
    "☃ 猫",
    "qu\"ote'",
    ":(glob)*",
    " space ",
    "a => b",
]


def test_odd_file_names_are_recorded_and_listed_as_they_are(desk: Desk) -> None:
    for name in ODD_NAMES:
        desk.write(name)
    assert {change.path for change in desk.changes()} == set(ODD_NAMES)


def test_a_renamed_file_has_both_names(desk: Desk) -> None:
    desk.write("a", "".join(f"line {number}\n" for number in range(50)))
    base = desk.snapshot("plan")
    (desk.workspace.path / "a").rename(desk.workspace.path / "odd\nname")
    head = desk.snapshot("implement")
    renamed = ChangedFile("odd\nname", "R", 0, 0, "a")
    assert changed_files(desk.repository, base=base, head=head) == (renamed,)


def test_bytes_that_are_no_text_and_links_are_changes(desk: Desk) -> None:
    (desk.workspace.path / "c").write_bytes(bytes(range(256)))
    (desk.workspace.path / "a").unlink()
    (desk.workspace.path / "a").symlink_to("/etc/passwd")
    changes = {change.path: change for change in desk.changes()}
    assert changes["c"] == ChangedFile("c", "A", 0, 0)
    assert changes["a"].status == "M"
    text = diff(desk.repository, base=desk.base, head=desk.snapshot())
    assert "+/etc/passwd" in text and "root:" not in text


def test_a_diff_is_unified_and_shows_names_as_they_are(desk: Desk) -> None:
    desk.write("a", "uno\n")
    desk.write("猫", "x\n")
    text = diff(desk.repository, base=desk.base, head=desk.snapshot())
    assert "diff --git a/a b/a\n" in text and "-one\n+uno\n" in text and "+++ b/猫\n" in text


def test_a_long_diff_is_cut_and_says_so(desk: Desk) -> None:
    desk.write("a", "☃" * 100_000)
    text = diff(desk.repository, base=desk.base, head=desk.snapshot(), limit=1000)
    assert text.endswith("[… the diff is longer than 1000 bytes and cut here …]\n") and len(text) < 1100


def _children() -> list[str]:
    return [pid for known in Path("/proc/self/task").glob("*/children") for pid in known.read_text().split()]


def test_a_patch_is_read_piece_by_piece_and_ends_with_its_reader(desk: Desk) -> None:
    (desk.workspace.path / "noise").write_bytes(os.urandom(3_000_000))
    head = desk.snapshot()
    known = set(_children())  # the fork server, and a portal of other tests
    pieces = patch(desk.repository, base=desk.base, head=head)
    first = next(pieces)
    assert first.startswith(b"diff --git a/noise b/noise") and len(first) < 100_000
    assert len(set(_children()) - known) == 1
    del pieces
    assert set(_children()) <= known


@pytest.mark.parametrize("commit", ["HEAD", "--output=/tmp/x", "0" * 40, "refs/source/main"])
def test_a_diff_takes_ids_of_commits_that_are_there_and_nothing_else(desk: Desk, commit: str) -> None:
    with pytest.raises(WorkspaceError):
        diff(desk.repository, base=commit, head=desk.base)
    with pytest.raises(WorkspaceError):
        patch(desk.repository, base=commit, head=desk.base)
    with pytest.raises(WorkspaceError):
        changed_files(desk.repository, base=commit, head=desk.base)


@pytest.mark.parametrize("label", ["-x", "a/b", "..", "a..b", "x.lock", "", "a b", "a\n", "ä", "x" * 101])
def test_a_label_that_is_no_plain_name_is_bad_input(desk: Desk, label: str) -> None:
    with pytest.raises(BadInput):
        desk.snapshot(label)


# What a hostile agent may leave in its clone. Each is given the folder and a marker to create.


def _hooks(clone: GitRepository, marker: Path) -> None:
    hooks = clone.path / ".git" / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (hooks / name).chmod(0o755)


def _setting(*keys: str) -> Callable[[GitRepository, Path], None]:
    def write(clone: GitRepository, marker: Path) -> None:
        (clone.path / ".gitattributes").write_text("* diff=evil merge=evil\n")
        for key in keys:
            clone.git("config", key, f"touch {marker};")

    return write


def _signing(clone: GitRepository, marker: Path) -> None:
    _setting("gpg.program")(clone, marker)
    clone.git("config", "commit.gpgSign", "true")


HOSTILE = {
    "hooks": _hooks,
    "fsmonitor": _setting("core.fsmonitor"),
    "diff": _setting("diff.external", "diff.evil.command", "diff.evil.textconv"),
    "merge": _setting("merge.evil.driver"),
    "ssh": _setting("core.sshCommand", "core.alternateRefsCommand", "uploadpack.packObjectsHook"),
    "signing": _signing,
    "editor": _setting("core.editor", "core.pager", "sequence.editor", "alias.add", "alias.write-tree"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_no_program_that_the_agent_set_up_is_run(desk: Desk, tmp_path: Path, how: str) -> None:
    marker = tmp_path / "ran"
    HOSTILE[how](desk.agent, marker)
    desk.write("c")
    snapshot = desk.snapshot()
    desk.workspace.publish(snapshot)
    desk.workspace.create(base=desk.base)
    assert "+new" in diff(desk.repository, base=desk.base, head=snapshot)
    assert "c" in {change.path for change in desk.changes("again")}
    assert not marker.exists()


@pytest.mark.parametrize("place", [".gitattributes", ".git/info/attributes"])
def test_a_filter_of_the_agent_changes_nothing_and_never_runs(desk: Desk, tmp_path: Path, place: str) -> None:
    """What is published is what was checked, whatever the clone's own settings say."""
    marker = tmp_path / "ran"
    (desk.workspace.path / ".git/info").mkdir(exist_ok=True)
    desk.write(place, "* filter=evil\n")
    desk.agent.git("config", "filter.evil.clean", f"touch {marker}; tr a-z A-Z")
    desk.agent.git("config", "filter.evil.required", "true")
    desk.write("c", "quiet\n")
    assert "+quiet" in diff(desk.repository, base=desk.base, head=desk.snapshot())
    assert not marker.exists()


@pytest.mark.parametrize(
    ("attribute", "content"),
    [
        ("text", b"a\r\n"),
        ("working-tree-encoding=UTF-16LE", "a\n".encode("utf-16le")),
        ("ident", b"$Id: x $\n"),
    ],
)
def test_a_file_that_is_stored_in_another_form_is_named(desk: Desk, attribute: str, content: bytes) -> None:
    """P5: a check saw the file as it is on the disk."""
    desk.write(".gitattributes", f"c {attribute}\n")
    (desk.workspace.path / "c").write_bytes(content)
    desk.write("d", "plain\r\n")
    made = desk.workspace.snapshot(label="plan", sandbox=desk.sandbox)
    assert made.notes == ("Stored in another form than checks saw, as .gitattributes wants it: c.",)


@in_the_sandbox
def test_a_filter_that_the_installation_lists_runs_in_the_sandbox(desk: Desk, tmp_path: Path) -> None:
    """Git LFS works so. The portal's file system is not there for it."""
    marker = tmp_path / "ran"
    desk.write(".gitattributes", "c filter=loud\n")
    desk.write("c", "loud\n")
    listed = replace(desk.workspace, filters=(("loud", f"touch {marker} 2>/dev/null; tr a-z A-Z"),))
    made = listed.snapshot(label="plan", sandbox=desk.sandbox)
    assert "+LOUD" in diff(desk.repository, base=desk.base, head=made.commit)
    assert not marker.exists()


@pytest.mark.git_lfs
@in_the_sandbox
def test_files_of_git_lfs_are_recorded_as_pointers_and_their_contents_are_kept(desk: Desk) -> None:
    """With the real program. Whoever fetches the result gets both, the pointer and the content."""
    desk.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    content = bytes(range(256)) * 4096
    (desk.workspace.path / "big.bin").write_bytes(content)
    listed = replace(desk.workspace, filters=(("lfs", ""),))
    made = listed.snapshot(label="plan", sandbox=desk.sandbox)
    name = hashlib.sha256(content).hexdigest()
    pointer = desk.repository.git.run("show", f"{made.commit}:big.bin").decode()
    assert pointer.splitlines() == [
        "version https://git-lfs.github.com/spec/v1", f"oid sha256:{name}", f"size {len(content)}"
    ]  # fmt: skip
    kept = desk.repository.path / "lfs" / "objects" / name[:2] / name[2:4] / name
    assert kept.read_bytes() == content
    assert made.notes == ("Stored in another form than checks saw, as .gitattributes wants it: big.bin.",)


def test_a_worktree_elsewhere_is_not_recorded(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").touch()
    desk.agent.git("config", "core.worktree", str(tmp_path / "elsewhere"))
    desk.write("c")
    assert desk.changes() == (ChangedFile("c", "A", 1, 0),)


def test_a_clone_that_is_marked_bare_is_recorded(desk: Desk) -> None:
    desk.agent.git("config", "core.bare", "true")
    desk.write("c")
    assert desk.changes() == (ChangedFile("c", "A", 1, 0),)


@in_the_sandbox
@pytest.mark.parametrize("link", ["symlink", "gitfile", "alternates"])
def test_another_tasks_clone_cannot_be_recorded_through_a_link(desk: Desk, link: str) -> None:
    """R4: the portal may read every clone, so it must not read where this one points."""
    other = Workspace(desk.workspace.path.with_name("2"), desk.repository, "cat-herder/other")
    other.create(base=desk.base)
    secret = GitRepository(other.path).commit(secret="theirs\n")
    git = desk.workspace.path / ".git"
    if link == "alternates":
        (git / "objects/info").mkdir(exist_ok=True)
        (git / "objects/info/alternates").write_text(f"{other.path}/.git/objects\n")
        (git / "refs/heads/cat-herder/fix").write_text(f"{secret}\n")
    else:
        git.rename(desk.home / "old")
        git.symlink_to(other.path / ".git") if link == "symlink" else git.write_text(
            f"gitdir: {other.path}/.git\n"
        )
    desk.write("c")
    assert desk.changes() == (ChangedFile("c", "A", 1, 0),)
    assert not desk.repository.has(secret)
    desk.agent.git("status")
    with pytest.raises(subprocess.CalledProcessError):
        desk.agent.git("cat-file", "-e", secret)


def test_a_recording_that_is_a_link_is_not_followed(desk: Desk) -> None:
    """A listed filter runs while the outcome is written, and could put a link to a file of the portal in."""
    desk.write(".gitattributes", "c filter=evil\n")
    evil = (
        f'rm -f "{desk.repository.path.parent}"/.1-*/result.json; ln -s /etc/hostname "$GIT_DIR/../pack"; cat'
    )
    desk.write("c")
    listed = replace(desk.workspace, filters=(("evil", evil),))
    with contextlib.suppress(WorkspaceError):
        listed.snapshot(label="plan", sandbox=desk.sandbox)
    assert "c" in {change.path for change in desk.changes("again")}


DAMAGES = {
    "no git folder": lambda git: git.rename(git.with_name(".old")),
    "a file": lambda git: (git.rename(git.with_name(".old")), git.write_text("gitdir: .old\n")),
    "a link": lambda git: (git.rename(git.with_name(".old")), git.symlink_to(".old")),
    "no head": lambda git: (git / "HEAD").unlink(),
    "empty head": lambda git: (git / "HEAD").write_text(""),
    "no objects": lambda git: shutil.rmtree(git / "objects"),
    "empty ref": lambda git: (git / "refs/heads/cat-herder/fix").write_text(""),
    "empty objects": lambda git: [
        one.chmod(0o600) or one.write_bytes(b"")
        for one in (*git.glob("objects/??/*"), *git.glob("objects/pack/*"))
    ],
    "no commit": lambda git: (git / "HEAD").write_text("ref: refs/heads/nowhere\n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_clone_without_a_usable_git_directory_is_recorded_and_made_whole(desk: Desk, damage: str) -> None:
    """R1, R2: the files go on top of what was recorded last, and it is said what was lost."""
    desk.write(".gitignore", ".old\n*.log\n")
    desk.write("c", "first\n")
    first = desk.snapshot("first")
    desk.write("c", "second\n")
    desk.write("x.log")
    DAMAGES[damage](desk.workspace.path / ".git")
    made = desk.workspace.snapshot(label="second", sandbox=desk.sandbox, recorded=first)
    assert desk.repository.commit(f"{made.commit}^") == first
    assert changed_files(desk.repository, base=first, head=made.commit) == (ChangedFile("c", "M", 1, 1),)
    assert made.notes and first[:10] in made.notes[0] and "stashes" in made.notes[0]
    assert desk.agent.git("status", "--porcelain") == "M c"
    assert desk.agent.git("rev-parse", "HEAD") == first
    assert (desk.workspace.path / "x.log").exists()
    desk.write("d")
    again = desk.workspace.snapshot(label="third", sandbox=desk.sandbox, recorded=made.commit)
    assert not again.notes and [one.path for one in desk.changes("fourth")] == [".gitignore", "c", "d"]


@pytest.mark.parametrize("part", ["config", "index"])
def test_settings_and_an_index_that_cannot_be_read_lose_nothing(desk: Desk, part: str) -> None:
    own = desk.agent.commit(c="mine\n")
    (desk.workspace.path / ".git" / part).write_text("[core\n")
    desk.write("d")
    snapshot = desk.snapshot()
    assert desk.repository.commit(f"{snapshot}^") == own
    assert [change.path for change in desk.changes("again")] == ["c", "d"]


def test_missing_objects_are_found_out_before_they_are_taken(desk: Desk) -> None:
    """The clone's own list of shallow commits says that nothing is missing; it is not believed."""
    own = desk.agent.commit(c="mine\n")
    desk.agent.commit(d="more\n")
    (desk.workspace.path / ".git" / "shallow").write_text(desk.agent.git("rev-parse", "HEAD") + "\n")
    (desk.workspace.path / ".git" / "objects" / own[:2] / own[2:]).unlink()
    made = desk.workspace.snapshot(label="plan", sandbox=desk.sandbox)
    assert desk.repository.commit(f"{made.commit}^") == desk.base and made.notes
    assert [change.path for change in changed_files(desk.repository, base=desk.base, head=made.commit)] == [
        "c",
        "d",
    ]


def test_a_workspace_that_is_gone_is_an_error(desk: Desk) -> None:
    desk.workspace.path.rename(desk.workspace.path.with_name("moved"))
    with pytest.raises(WorkspaceError, match="does not exist"):
        desk.snapshot()


def test_a_machine_without_git_is_reported(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CatHerderError, match="git cannot be started"):
        desk.repository.fetch()


def test_settings_of_the_portals_user_have_no_effect(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[diff]\n\tnoprefix = true\n\tmnemonicPrefix = true\n[color]\n\tui = always\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(desk.source.path))
    desk.write("a", "uno\n")
    assert "--- a/a\n" in diff(desk.repository, base=desk.base, head=desk.snapshot())


@pytest.mark.parametrize(
    ("slug", "branch"),
    [
        ("fix-login", "cat-herder/fix-login"),
        ("01 Add a cat!", "cat-herder/01-Add-a-cat"),
        ("a..b", "cat-herder/a-b"),
        ("-x-", "cat-herder/x"),
        ("猫", "cat-herder/猫"),
        ("x.lock", "cat-herder/x-lock"),
        ("a/b~c^d:e", "cat-herder/a-b-c-d-e"),
        ("x" * 200, "cat-herder/" + "x" * 80),
    ],
)
def test_a_branch_is_named_after_the_task(slug: str, branch: str) -> None:
    assert branch_name(slug) == branch


@pytest.mark.parametrize("slug", ["", "--", "..", "///"])
def test_a_name_without_letters_gives_no_branch(slug: str) -> None:
    with pytest.raises(BadInput):
        branch_name(slug)


def test_two_processes_may_fetch_at_once(desk: Desk) -> None:
    script = (
        "import sys; from pathlib import Path; from tasks_app.git import Repository\n"
        "for _ in range(5): Repository(Path(sys.argv[1]), sys.argv[2]).fetch()"
    )
    other = desk.repository.path.with_name("shared.git")
    command = [sys.executable, "-c", script, str(other), str(desk.source.path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]


def test_a_shallow_source_can_be_worked_on(tmp_path: Path) -> None:
    """What a `git clone --depth` made has a branch like any other; its history just ends earlier."""
    full = GitRepository.make(tmp_path / "full", a="one\n")
    full.commit(a="two\n")
    url = f"file://{full.path}"
    subprocess.run(["git", "clone", "-q", "--depth=1", url, str(tmp_path / "shallow")], check=True)
    repository = Repository(tmp_path / "data" / "1.git", str(tmp_path / "shallow"))
    repository.fetch()
    base = repository.head("main")
    workspace = Workspace(tmp_path / "data" / "work", repository, branch_name("fix"))
    workspace.create(base=base)
    GitRepository(workspace.path).commit(b="own\n")
    (workspace.path / "c").write_text("new\n")
    made = workspace.snapshot(label="plan", sandbox=Sandbox(None), publish=True)
    assert [one.path for one in changed_files(repository, base=base, head=made.commit)] == ["b", "c"]
    assert not made.notes
