"""Pushing to real servers: a served folder, https with a password, ssh (V6)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from tasks_app.core.errors import MergeConflict, PublishingFailed, TookTooLong
from tasks_app.git.program import SERVER_BYTES, Git
from tasks_app.git.publishing import HttpsToken, Remote, RemoteState, SshKey, make_commit, merged_tree
from tasks_app.git.repository import Repository
from tests.git_servers import (
    TOKEN,
    USER,
    HttpsServer,
    SshServer,
    bare_repository,
    https_server,
    refuse_pushes,
    silent_server,
    ssh_key,
)
from tests.integration.git_repository import GitRepository
from tests.waiting import wait_until

BRANCH = "cat-herder/paint-it"
GOOD = HttpsToken(USER, TOKEN)


@pytest.fixture
def name(served_folder: Path) -> str:
    """The name of a new empty repository on all servers."""
    return bare_repository(served_folder / f"{uuid4().hex}.git").name


@pytest.fixture
def work(tmp_path: Path) -> GitRepository:
    return GitRepository.make(tmp_path / "work", **{"a.txt": "a\n"})


def commits(served_folder: Path, name: str) -> str:
    return GitRepository(served_folder / name).git("for-each-ref", "--format=%(refname) %(objectname)")


def commands() -> list[str]:
    """The command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return found


def assert_publishes(remote: Remote, own: Repository, work: GitRepository) -> None:
    """A first push, and a second one after new work."""
    first = work.git("rev-parse", "HEAD")
    assert remote.read(BRANCH).commit == ""
    remote.push(own, first, BRANCH, expected="")
    assert remote.read(BRANCH).commit == first
    second = work.commit(**{"b.txt": "b\n"})
    own.fetch()
    remote.push(own, second, BRANCH, expected=first)
    assert remote.read(BRANCH).commit == second


def test_to_a_folder(served_folder: Path, name: str, own: Repository, work: GitRepository) -> None:
    assert_publishes(Remote(str(served_folder / name)), own, work)


def test_over_https(https: HttpsServer, name: str, own: Repository, work: GitRepository) -> None:
    assert_publishes(Remote(https.url(name), GOOD), own, work)


@pytest.mark.sshd
def test_over_ssh(ssh: SshServer, name: str, own: Repository, work: GitRepository) -> None:
    assert_publishes(Remote(ssh.url(name), SshKey(ssh.private_key, ssh.known_hosts)), own, work)


def test_a_remote_says_which_branch_is_its_default(
    served_folder: Path, name: str, own: Repository, work: GitRepository
) -> None:
    remote = Remote(str(served_folder / name))
    assert remote.read("main") == RemoteState("", "")  # without a commit it does not say
    work.git("push", "--quiet", str(served_folder / name), "HEAD:main")
    assert remote.read("main") == RemoteState("main", work.git("rev-parse", "HEAD"))


def test_commits_of_others_are_not_overwritten(
    served_folder: Path, name: str, own: Repository, work: GitRepository
) -> None:
    ours, remote = work.git("rev-parse", "HEAD"), Remote(str(served_folder / name))
    remote.push(own, ours, BRANCH, expected="")
    theirs = work.commit(**{"theirs.txt": "x"})
    work.git("push", "--quiet", str(served_folder / name), f"HEAD:{BRANCH}")
    for expected in ("", ours):
        with pytest.raises(PublishingFailed, match=f"refused the branch {BRANCH}: stale info"):
            remote.push(own, ours, BRANCH, expected=expected)
    assert theirs in commits(served_folder, name)


def test_what_a_hook_of_the_server_says_is_passed_on(
    https: HttpsServer, served_folder: Path, name: str, own: Repository, work: GitRepository
) -> None:
    refuse_pushes(served_folder / name, f"not on a Friday, {TOKEN}")
    with pytest.raises(PublishingFailed, match="pre-receive hook declined") as failed:
        Remote(https.url(name), GOOD).push(own, work.git("rev-parse", "HEAD"), BRANCH, expected="")
    assert "not on a Friday, …" in str(failed.value) and TOKEN not in str(failed.value)


def test_another_credential_is_wanted(https: HttpsServer, name: str) -> None:
    with pytest.raises(PublishingFailed, match="does not accept the project's credential"):
        Remote(https.url(name), replace(GOOD, token="glpat-of-yesterday")).read(BRANCH)
    with pytest.raises(PublishingFailed, match="wants a credential, and the project has none"):
        Remote(https.url(name)).read(BRANCH)


@pytest.mark.sshd
def test_another_key_is_wanted(ssh: SshServer, name: str, tmp_path: Path) -> None:
    stranger = SshKey(ssh_key(tmp_path / "key"), ssh.known_hosts)
    with pytest.raises(PublishingFailed, match="does not accept the project's credential"):
        Remote(ssh.url(name), stranger).read(BRANCH)


@pytest.mark.sshd
def test_an_unknown_host_gets_nothing(ssh: SshServer, name: str, tmp_path: Path) -> None:
    ssh_key(tmp_path / "other")
    other = f"[127.0.0.1]:{ssh.port} {(tmp_path / 'other.pub').read_text()}"
    for known_hosts in (other, "example.org ssh-ed25519 AAAA\n"):
        with pytest.raises(PublishingFailed, match="is not one of the known hosts"):
            Remote(ssh.url(name), SshKey(ssh.private_key, known_hosts)).read(BRANCH)


def test_a_server_cannot_send_the_token_elsewhere(https: HttpsServer, name: str, tmp_path: Path) -> None:
    with https_server(tmp_path) as elsewhere:
        https.redirects_to = f"https://localhost:{elsewhere.port}"
        try:
            with pytest.raises(PublishingFailed, match="cannot be reached"):
                Remote(https.url(name), GOOD).read(BRANCH)
        finally:
            https.redirects_to = ""
        assert elsewhere.seen == []


@pytest.mark.parametrize("scheme", ["https", "ssh"])
def test_a_remote_that_hangs_is_given_up(scheme: str, own: Repository, work: GitRepository) -> None:
    with silent_server() as port:
        remote = Remote(f"{scheme}://127.0.0.1:{port}/x", GOOD if scheme == "https" else SshKey("k", "h"))
        with pytest.raises(PublishingFailed, match=r"did not answer within 0\.3 seconds"):
            remote.read(BRANCH, seconds=0.3)
        with pytest.raises(PublishingFailed, match=r"did not answer within 0\.3 seconds"):
            remote.push(own, work.git("rev-parse", "HEAD"), BRANCH, expected="", seconds=0.3)
        # The killed programs are listed until the system has ended them, which takes a moment under load.
        wait_until(lambda: not [command for command in commands() if str(port) in command], seconds=10)


def test_a_remote_that_is_not_there(tmp_path: Path) -> None:
    with silent_server() as port:
        pass
    for url in (str(tmp_path / "nowhere"), f"https://127.0.0.1:{port}/x", f"ssh://127.0.0.1:{port}/x"):
        with pytest.raises(PublishingFailed, match="cannot be reached"):
            Remote(url).read(BRANCH)


def test_the_same_commit_is_made_again(own: Repository, work: GitRepository) -> None:
    base = work.git("rev-parse", "HEAD")
    work.commit(**{"b.txt": "b\n"})
    head = work.commit(**{"c.txt": "c\n"})
    own.fetch()

    def made() -> str:
        return make_commit(
            own,
            own.tree(head),
            parents=[base],
            message="Paint it\n\nIn blue.",
            author=("Ann", "ann@example.org"),
            at=datetime(2026, 1, 2, tzinfo=UTC),
        )

    one = made()
    assert made() == one
    shown = GitRepository(own.path).git("log", "--format=%an <%ae>%n%cI%n%B", f"{base}..{one}")
    assert shown == "Ann <ann@example.org>\n2026-01-02T00:00:00+00:00\nPaint it\n\nIn blue."
    assert own.tree(one) == own.tree(head)


def test_a_merge_has_the_files_of_both_or_names_those_that_conflict(
    own: Repository, work: GitRepository
) -> None:
    base = work.git("rev-parse", "HEAD")
    main = work.commit(**{"a.txt": "main\n", "b c.txt": "main\n"})
    work.git("checkout", "--quiet", "-b", "one", base)
    one = work.commit(**{"c.txt": "c\n"})
    work.git("checkout", "--quiet", "-b", "two", base)
    two = work.commit(**{"a.txt": "two\n", "b c.txt": "two\n"})
    own.fetch()
    listed = GitRepository(own.path).git("ls-tree", "--name-only", merged_tree(own, one, main))
    assert listed.splitlines() == ["a.txt", "b c.txt", "c.txt"]
    with pytest.raises(MergeConflict, match=r"These files conflict: a\.txt, b c\.txt\.") as conflict:
        merged_tree(own, two, main)
    assert conflict.value.files == ["a.txt", "b c.txt"]


FLOOD = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 7"


def test_only_the_beginning_of_what_a_server_sends_is_kept() -> None:
    """One that sends without end must not fill the worker's memory until its time is over."""
    done = Git().finish_with_server("-c", f"alias.flood=!{FLOOD}", "flood", timeout=60)
    assert (done.code, len(done.stdout), len(done.stderr)) == (7, SERVER_BYTES, SERVER_BYTES)


def test_a_server_that_sends_without_end_is_given_up() -> None:
    with pytest.raises(TookTooLong):
        Git().finish_with_server("-c", "alias.flood=!yes", "flood", timeout=0.5)
