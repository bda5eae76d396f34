"""R1, R3: a damaged repository of the portal says so in a sentence and is repaired by fetching."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks_app.core.errors import RepositoryDamaged, WorkspaceError
from tasks_app.git import Repository, Workspace, branch_name, changed_files, diff, patch
from tasks_app.git.faults import damage_marker
from tasks_app.sandbox import Sandbox
from tests.integration.git_repository import GitRepository


class Desk:
    """A source, the portal's repository of it, and one task's recorded work."""

    def __init__(self, folder: Path) -> None:
        self.source = GitRepository.make(folder / "source", a="one\n", b="two\n")
        self.repository = Repository(folder / "repos" / "1.git", str(self.source.path), "shop")
        self.repository.fetch()
        self.base = self.repository.head("main")
        self.workspace = Workspace(folder / "work" / "1", self.repository, branch_name("fix"))
        self.workspace.create(base=self.base)
        (folder / "home").mkdir()
        (self.workspace.path / "c").write_text("new\n")
        self.work = self.workspace.snapshot(label="do", sandbox=Sandbox(None), publish=True).commit

    @property
    def path(self) -> Path:
        return self.repository.path

    def packs(self, suffix: str = "pack") -> list[Path]:
        return sorted(self.path.glob(f"objects/pack/*.{suffix}"))

    def read(self) -> None:
        """What every page and every new task of the project does."""
        diff(self.repository, base=self.base, head=self.repository.head("main"))
        self.repository.summary(self.repository.head("main"))
        self.repository.branches()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def empty_refs(desk: Desk) -> None:
    """What a power cut leaves."""
    for place in desk.path.rglob("refs/**/*"):
        if place.is_file():
            place.write_bytes(b"")


def empty_packs(desk: Desk) -> None:
    for place in desk.packs("*"):
        place.chmod(0o600)
        place.write_bytes(b"")


def packs_away(desk: Desk) -> None:
    shutil.rmtree(desk.path / "objects/pack")


def flipped_bytes(desk: Desk) -> None:
    for place in desk.packs():
        place.chmod(0o600)
        data = bytearray(place.read_bytes())
        data[len(data) // 2] ^= 0xFF
        place.write_bytes(data)


def no_indexes(desk: Desk) -> None:
    for place in desk.packs("idx"):
        place.unlink()


def no_head(desk: Desk) -> None:
    (desk.path / "HEAD").unlink()


def empty_head(desk: Desk) -> None:
    (desk.path / "HEAD").write_text("")


def bad_config(desk: Desk) -> None:
    (desk.path / "config").write_text("[core\nrubbish")


def bad_packed_refs(desk: Desk) -> None:
    desk.repository.git.run("pack-refs", "--all")
    place = desk.path / "packed-refs"
    place.write_text(place.read_text()[:-30] + "\0\0\0\0")


def no_refs_folder(desk: Desk) -> None:
    shutil.rmtree(desk.path / "refs")


def deleted(desk: Desk) -> None:
    shutil.rmtree(desk.path)


def a_file_in_its_place(desk: Desk) -> None:
    shutil.rmtree(desk.path)
    desk.path.write_text("not a repository")


DAMAGES = [
    empty_refs, empty_packs, packs_away, flipped_bytes, no_indexes, no_head, empty_head, bad_config,
    bad_packed_refs, no_refs_folder, deleted, a_file_in_its_place,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_repaired_by_fetching(desk: Desk, damage: Callable[[Desk], None]) -> None:
    """As a person does it, with *Fetch now*; then tasks can be made again."""
    damage(desk)
    assert desk.repository.problems()
    fetched = desk.repository.fetch(thorough=True)
    assert fetched.repaired
    assert desk.repository.problems() == []
    desk.read()
    other = Workspace(desk.workspace.path.with_name("2"), desk.repository, branch_name("next"))
    other.create(base=desk.repository.head("main"))
    assert (other.path / "a").read_text() == "one\n"
    assert desk.repository.fetch(thorough=True).repaired is False


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_that_was_met_is_repaired_by_any_fetch(desk: Desk, damage: Callable[[Desk], None]) -> None:
    """Making a task fetches too, so the second attempt works even if nobody pressed a button."""
    damage(desk)
    try:
        desk.read()
        list(changed_files(desk.repository, base=desk.base, head=desk.work))
    except WorkspaceError as error:
        assert "Traceback" not in str(error)
    desk.repository.fetch()
    desk.read()


@pytest.mark.parametrize("damage", [empty_refs, no_head, bad_config, packs_away, deleted])
def test_damage_is_reported_with_the_project_and_what_to_do(
    desk: Desk, damage: Callable[[Desk], None]
) -> None:
    damage(desk)
    with pytest.raises(
        RepositoryDamaged, match=r"repository of shop is damaged \(.+\)\. Fetch the project again"
    ):
        desk.repository.summary(desk.repository.head("main"))
    assert damage_marker(desk.path).exists()


@pytest.mark.parametrize("damage", [no_indexes, no_head, empty_head, bad_config, bad_packed_refs])
def test_recorded_work_that_is_still_there_stays(desk: Desk, damage: Callable[[Desk], None]) -> None:
    """What only the portal has is not given up because something beside it is damaged."""
    damage(desk)
    desk.repository.fetch(thorough=True)
    assert desk.repository.has(desk.work)
    assert "+new" in diff(desk.repository, base=desk.base, head=desk.work)


def test_what_is_moved_aside_is_kept(desk: Desk) -> None:
    flipped_bytes(desk)
    before = [place.read_bytes() for place in desk.packs()]
    fetched = desk.repository.fetch(thorough=True)
    (aside, *_) = sorted(desk.path.parent.glob("1.git.damaged-*"))
    assert sorted(place.read_bytes() for place in aside.glob("objects/pack/*.pack")) == sorted(before)
    assert {f"objects/pack/{place.name}" for place in aside.glob("objects/pack/*.pack")} <= set(
        fetched.removed
    )


def test_damage_is_looked_for_after_the_machine_was_started_anew(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has met it yet: the first fetch after a power cut finds it."""
    for place in desk.packs("idx"):  # git itself does not look at the end of an index
        place.chmod(0o600)
        place.write_bytes(place.read_bytes()[:-1] + b"\0")
    assert desk.repository.fetch().repaired is False
    boot = tmp_path / "boot_id"
    boot.write_text("another start\n")
    monkeypatch.setattr("tasks_app.git.repository._BOOT_ID", boot)
    assert desk.repository.fetch().repaired
    assert desk.repository.problems() == []


def test_a_commit_that_is_not_there_is_no_damage(desk: Desk) -> None:
    assert not desk.repository.has("1" * 40)
    with pytest.raises(WorkspaceError):
        desk.repository.head("absent")
    assert not damage_marker(desk.path).exists()


@pytest.mark.parametrize("seed", range(8))
def test_any_damage_ends_in_a_repository_that_works(desk: Desk, seed: int) -> None:
    """Files of the repository cut, emptied, overwritten or removed at random: the fetch always repairs it."""
    chance = random.Random(seed)  # noqa: S311 (damage, not secrets)
    files = sorted(place for place in desk.path.rglob("*") if place.is_file())
    for place in chance.sample(files, k=min(6, len(files))):
        place.chmod(0o600)
        match chance.randrange(4):
            case 0:
                place.write_bytes(b"")
            case 1:
                place.write_bytes(place.read_bytes()[: place.stat().st_size // 2])
            case 2:
                place.write_bytes(chance.randbytes(place.stat().st_size))
            case _:
                place.unlink()
    desk.repository.fetch(thorough=True)
    assert desk.repository.problems() == []
    desk.read()


def test_the_change_of_a_lost_commit_is_a_sentence(desk: Desk) -> None:
    shutil.rmtree(desk.path)
    desk.repository.fetch()
    for look in (diff, changed_files, patch):
        with pytest.raises(
            WorkspaceError, match=f"cannot be shown: .*no longer has the commit {desk.work[:12]}"
        ):
            look(desk.repository, base=desk.base, head=desk.work)


def test_references_of_tasks_come_back_where_their_commits_are_left(desk: Desk) -> None:
    empty_refs(desk)
    assert desk.repository.fetch(thorough=True).repaired
    wanted = {"refs/heads/cat-herder/fix": desk.work, "refs/heads/cat-herder/gone": "1" * 40}
    assert desk.repository.restore_refs(wanted) == {"refs/heads/cat-herder/gone": "1" * 40}
    assert desk.repository.commit("refs/heads/cat-herder/fix") == desk.work


def test_a_damaged_source_is_not_taken_for_a_damaged_copy(desk: Desk) -> None:
    newest = desk.source.commit(c="three\n")
    blob = desk.source.git("rev-parse", f"{newest}:c")
    place = desk.source.path / ".git/objects" / blob[:2] / blob[2:]
    place.chmod(0o600)
    place.write_bytes(b"nothing")
    with pytest.raises(WorkspaceError, match="git fetch failed") as refusal:
        desk.repository.fetch(thorough=True)
    assert not isinstance(refusal.value, RepositoryDamaged)
    assert not damage_marker(desk.path).exists() and desk.repository.problems() == []
    assert list(desk.path.parent.glob("*.damaged-*")) == []


@pytest.mark.parametrize(
    "lock",
    ["refs/heads/cat-herder/fix.lock", "refs/source/main.lock", "refs/cat-herder/cat-herder/fix/again.lock"],
)
def test_a_lock_of_a_git_that_was_killed_stops_nothing(desk: Desk, lock: str) -> None:
    """Neither the next recording nor the next fetch; git itself would refuse for ever."""
    (desk.path / lock).touch()
    newest = desk.source.commit(a="changed\n")
    desk.repository.fetch()
    assert desk.repository.head("main") == newest
    desk.repository.set_refs(newest, "refs/cat-herder/cat-herder/fix/again", "refs/heads/cat-herder/fix")
    assert desk.repository.commit("refs/heads/cat-herder/fix") == newest


def test_what_other_processes_write_meanwhile_is_no_damage(desk: Desk) -> None:
    """git's lock of a reference is empty for a moment, and packing references removes their files."""
    (desk.path / "refs/heads/cat-herder/other.lock").touch()
    assert desk.repository.problems() == []
    assert desk.repository.fetch(thorough=True).repaired is False
    assert (desk.path / "refs/heads/cat-herder/other.lock").exists()
