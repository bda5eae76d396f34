"""Publishing by API and terminal, and the credential of a project: stored, shown, used, removed (V6)."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tasks_app.core.errors import BadInput, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.git.publishing import HttpsToken, SshKey
from tasks_app.models import Action, AuditEntry, Project, Publication, PublishCredential, Role, Task
from tasks_app.services.publishing.settings import (
    NewCredential,
    credential_fault,
    remote_of,
    remove_credential,
    store_credential,
)
from tests.api import PROBLEM, Script
from tests.factories import MembershipFactory, ProjectFactory, TaskFactory, UserFactory
from tests.fake_script import Turn, say, write
from tests.git_servers import ssh_key
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner

pytestmark = pytest.mark.django_db

TOKEN = "glpat-0123456789abcdef"
_RSA_KEY = rsa.generate_private_key(65537, 2048)


def _pem(key: Any, form: PrivateFormat, passphrase: str = "") -> str:
    encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    return str(key.private_bytes(Encoding.PEM, form, encryption).decode())


_RSA = _pem(_RSA_KEY, PrivateFormat.TraditionalOpenSSL)
BY_TOKEN = NewCredential("token", TOKEN, username="robot")


@pytest.fixture
def web(project: Project) -> Project:
    """A project whose source is an https URL."""
    Project.objects.update(source="https://git.example/shop.git")
    project.refresh_from_db()
    return project


@pytest.fixture
def maintainer(project: Project) -> Any:
    return acting(MembershipFactory.create(project=project, role=Role.MAINTAINER).user)


@pytest.fixture
def result(project: Project) -> Task:
    """A task that is done, with a result."""
    return TaskFactory.create(project=project, phase=Phase.DONE, base_commit="a" * 40, head_commit="b" * 40)


def keyed(tmp_path: Path, **more: str) -> NewCredential:
    return NewCredential("ssh_key", ssh_key(tmp_path / "key", **more), known_hosts="host ssh-ed25519 AAAA")


def test_a_token_is_stored_encrypted_and_given_to_git_only(web: Project, maintainer: Any) -> None:
    stored = store_credential(web, BY_TOKEN, by=maintainer)
    assert TOKEN not in str(PublishCredential.objects.values_list().get())
    assert stored.shown == "user robot"
    assert remote_of(web).credential == HttpsToken("robot", TOKEN)
    assert TOKEN not in repr(remote_of(web)) + repr(BY_TOKEN)
    entry = AuditEntry.objects.get(action=Action.CREDENTIAL_STORED)
    assert entry.actor == maintainer.user and TOKEN not in str(entry.detail)


def test_a_key_is_known_by_its_fingerprint(project: Project, maintainer: Any, tmp_path: Path) -> None:
    Project.objects.update(source="git@git.example:shop.git")
    project.refresh_from_db()
    new = keyed(tmp_path)
    stored = store_credential(project, new, by=maintainer)
    assert stored.shown.startswith("key SHA256:") and len(stored.shown) == len("key SHA256:") + 43
    assert remote_of(project).credential == SshKey(new.secret, "host ssh-ed25519 AAAA\n")


def test_a_key_in_pem_is_one_too(project: Project, maintainer: Any) -> None:
    Project.objects.update(publish_url="ssh://git.example/shop.git")
    project.refresh_from_db()
    new = NewCredential("ssh_key", _RSA, known_hosts="host ssh-ed25519 AAAA")
    assert store_credential(project, new, by=maintainer).shown.startswith("key SHA256:")


@pytest.mark.parametrize("form", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
def test_an_app_has_an_rsa_key(project: Project, maintainer: Any, form: PrivateFormat) -> None:
    Project.objects.update(publish_url="https://github.com/team/shop")
    project.refresh_from_db()
    new = NewCredential("github_app", _pem(_RSA_KEY, form), username="12")
    assert store_credential(project, new, by=maintainer).shown.startswith("app 12, key SHA256:")


@pytest.mark.parametrize(
    ("key", "form", "passphrase"),
    [
        (_RSA_KEY, PrivateFormat.OpenSSH, ""),
        (_RSA_KEY, PrivateFormat.PKCS8, "secret"),
        (ed25519.Ed25519PrivateKey.generate(), PrivateFormat.PKCS8, ""),
        (ec.generate_private_key(ec.SECP256R1()), PrivateFormat.PKCS8, ""),
    ],
)
def test_another_key_of_an_app_is_refused(
    project: Project, maintainer: Any, key: Any, form: PrivateFormat, passphrase: str
) -> None:
    """What signs for an app reads no other key, and would fail only when a result is published."""
    Project.objects.update(publish_url="https://github.com/team/shop")
    project.refresh_from_db()
    new = NewCredential("github_app", _pem(key, form, passphrase), username="12")
    with pytest.raises(BadInput, match="is an RSA private key without a passphrase") as refused:
        store_credential(project, new, by=maintainer)
    assert refused.value.where == "secret"
    assert not PublishCredential.objects.exists()


@pytest.mark.parametrize(
    ("source", "new", "where"),
    [
        ("/srv/shop", BY_TOKEN, "kind"),
        ("https://git.example/shop", NewCredential("ssh_key", "k", known_hosts="h"), "kind"),
        ("https://git.example/shop", NewCredential("token", "two\nlines", username="u"), "secret"),
        ("https://git.example/shop", NewCredential("token", "t", username=""), "username"),
        ("https://git.example/shop", NewCredential("token", "t", username="a\nquit=1"), "username"),
        ("https://github.com/team/shop", NewCredential("github_app", "no key", username="12"), "secret"),
        ("https://github.com/team/shop", NewCredential("github_app", _RSA, username="12; x"), "username"),
        ("ssh://git@github.com/team/shop", NewCredential("github_app", _RSA, username="12"), "kind"),
        ("ssh://git.example/shop", NewCredential("ssh_key", "no key", known_hosts="h"), "secret"),
        ("ssh://git.example/shop", NewCredential("ssh_key", "k"), "known_hosts"),
    ],
)
def test_what_does_not_fit_is_refused(
    source: str, new: NewCredential, where: str, project: Project, maintainer: Any
) -> None:
    Project.objects.update(source=source)
    project.refresh_from_db()
    with pytest.raises(BadInput) as refused:
        store_credential(project, new, by=maintainer)
    assert refused.value.where == where
    assert not PublishCredential.objects.exists()


def test_a_key_with_a_passphrase_is_refused(project: Project, maintainer: Any, tmp_path: Path) -> None:
    Project.objects.update(source="ssh://git.example/shop")
    project.refresh_from_db()
    with pytest.raises(BadInput, match="has a passphrase"):
        store_credential(project, keyed(tmp_path, passphrase="secret"), by=maintainer)


def test_a_credential_is_for_one_repository(web: Project, maintainer: Any) -> None:
    """Who moves a project does not send its token to another host."""
    store_credential(web, BY_TOKEN, by=maintainer)
    Project.objects.update(source="https://elsewhere.example/shop.git")
    web.refresh_from_db()
    assert "is for https://git.example/shop.git" in credential_fault(web)
    with pytest.raises(BadInput, match=r"is for https://git\.example"):
        remote_of(web)


def test_a_changed_secret_key_is_reported(web: Project, maintainer: Any, settings: Any, result: Task) -> None:
    store_credential(web, BY_TOKEN, by=maintainer)
    settings.SECRET_KEY = "another"
    publication = Publication.objects.create(
        task=result, commit=result.head_commit, url=web.source, branch=result.branch
    )
    carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == "refused" and "Enter it again" in publication.answer


def test_it_is_removed(web: Project, maintainer: Any) -> None:
    store_credential(web, BY_TOKEN, by=maintainer)
    remove_credential(web, by=maintainer)
    remove_credential(web, by=maintainer)
    assert not PublishCredential.objects.exists()
    assert AuditEntry.objects.filter(action=Action.CREDENTIAL_REMOVED).count() == 1


def test_a_member_may_neither_store_nor_remove_it(web: Project) -> None:
    member = acting(MembershipFactory.create(project=web).user)
    with pytest.raises(NotAllowed):
        store_credential(web, BY_TOKEN, by=member)
    with pytest.raises(NotAllowed):
        remove_credential(web, by=member)


def test_a_script_asks_and_sees_what_became_of_it(result: Task) -> None:
    script = Script(MembershipFactory.create(project=result.project, user__username="ann").user)
    asked = script.post(f"/tasks/{result.pk}/publish", {"squash": True})
    assert asked.status_code == 202, asked.content
    said = asked.json()
    assert (said["state"], said["squash"], said["commit"]) == ("pending", True, "b" * 40)
    assert said["requested_by"]["username"] == "ann"
    assert script.post(f"/tasks/{result.pk}/publish", {"squash": True}).json()["id"] == said["id"]
    carry_out(said["id"])  # to /nowhere/project
    (listed,) = script.get(f"/tasks/{result.pk}/publications").json()["items"]
    assert listed["state"] == "refused" and "/nowhere/project" in listed["answer"]


def test_a_script_need_not_send_a_body(result: Task) -> None:
    script = Script(MembershipFactory.create(project=result.project).user)
    said = script.post(f"/tasks/{result.pk}/publish").json()
    assert (said["squash"], said["update"]) == (False, False)
    assert script.post(f"/tasks/{result.pk}/publish", {"squash": "yes"}).status_code == 400


def test_a_script_is_told_why_a_result_cannot_be_published(result: Task) -> None:
    Task.objects.update(phase=Phase.FAILED)
    answer = Script(MembershipFactory.create(project=result.project).user).post(
        f"/tasks/{result.pk}/publish", {}
    )
    assert (answer.status_code, answer["Content-Type"]) == (409, PROBLEM)
    assert "task that is done" in answer.json()["detail"]


def test_a_script_stores_a_credential_and_never_gets_it_back(web: Project, maintainer: Any) -> None:
    script = Script(maintainer.user)
    place = f"/projects/{web.name}/publishing"
    answer = script.send(
        "put", f"{place}/credential", {"kind": "token", "secret": TOKEN, "username": "robot"}
    )
    assert answer.status_code == 200, answer.content
    shown = script.get(place)
    assert shown.json()["credential"]["shown"] == "user robot" and shown.json()["fault"] == ""
    assert TOKEN not in (answer.content + shown.content).decode()
    bad = script.send(
        "put", f"{place}/credential", {"kind": "ssh_key", "secret": TOKEN, "known_hosts": "x" * 20_001}
    )
    assert bad.status_code == 400 and TOKEN not in bad.content.decode()
    assert script.send("delete", f"{place}/credential").status_code == 204
    assert script.get(place).json()["credential"] is None


def test_a_fork_says_where_pull_requests_go(project: Project, maintainer: Any, manage: Manage) -> None:
    UserFactory.create(username="root", is_superuser=True)
    Project.objects.update(publish_url="https://github.com/herder/shop")
    script, path = Script(maintainer.user), f"/projects/{project.name}/publishing"
    for repository in ("team/shop", ""):
        changed = script.send("patch", path, {"pull_request_repository": repository})
        assert changed.json()["pull_request_repository"] == repository
        assert repository in manage("project", "publishing", project.name)[1]


def test_a_script_changes_one_setting_and_leaves_the_others(project: Project, maintainer: Any) -> None:
    script = Script(maintainer.user)
    place = f"/projects/{project.name}/publishing"
    said = script.send("patch", place, {"author": "Bot <bot@example.org>"}).json()
    assert said["author"] == "Bot <bot@example.org>" and "release/*" in said["protected_branches"]
    assert script.send("patch", place, {"own_url": "/elsewhere"}).status_code == 403
    admin = Script(UserFactory.create(is_superuser=True))
    assert admin.send("patch", place, {"own_url": "/elsewhere"}).json()["url"] == "/elsewhere"


def test_the_terminal_publishes_and_says_what_happened(runner: Runner, manage: Manage) -> None:
    task = runner.advance(runner.task([]))
    code, out, err = manage("publish", task.pk)
    assert (code, out) == (1, "") and "changed nothing" in err


@pytest.mark.django_db(transaction=True)
def test_the_terminal_publishes_without_a_worker(runner: Runner, manage: Manage) -> None:
    play = [Turn("Painting.", (write("paint.txt", "blue\n"),)), say("Painted.")]
    task = runner.advance(runner.task(play))
    code, out, err = manage("publish", f"{task.project.name}/{task.slug}")
    assert (code, err) == (0, "")
    assert f"Published {task.head_commit} as {task.branch} to {task.project.source}." in out
    source = GitRepository(Path(task.project.source))
    assert source.git("rev-parse", task.branch) == task.head_commit
    code, out, _ = manage("publish", task.pk, "--squash", "--json")
    assert (code, json.loads(out)["state"]) == (0, "pushed")
    code, out, _ = manage("publish", task.pk, "--squash", "--message", "Paint", "--json")
    assert (code, json.loads(out)["message"]) == (0, "Paint")
    assert source.git("log", "-1", "--format=%s", task.branch) == "Paint"
    source.git("update-ref", f"refs/heads/{task.branch}", "main")
    code, _, err = manage("publish", task.pk)
    assert code == 1 and "Not published. Somebody else has pushed" in err


def test_the_terminal_reads_a_credential_from_its_input(
    web: Project, manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    UserFactory.create(username="root", is_superuser=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))
    code, out, err = manage("project", "credential", web.name, "--username", "robot")
    assert (code, err) == (0, "") and "user robot, for https://git.example/shop.git" in out
    assert TOKEN not in out
    code, out, _ = manage("project", "credential", web.name, "--remove", "--json")
    assert json.loads(out)["credential"] is None


def test_the_terminal_asks_for_a_token_without_showing_it(
    web: Project, manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    UserFactory.create(username="root", is_superuser=True)
    monkeypatch.setattr("tasks_app.cli.options.getpass", lambda prompt: TOKEN)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert manage("project", "credential", web.name, "--username", "robot")[0] == 0
    assert remote_of(web).credential == HttpsToken("robot", TOKEN)


def test_the_terminal_reads_a_key_and_the_host_keys(
    manage: Manage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    UserFactory.create(username="root", is_superuser=True)
    project = ProjectFactory.create(source="git@git.example:shop.git")
    (tmp_path / "hosts").write_text("git.example ssh-ed25519 AAAA\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO(ssh_key(tmp_path / "key")))
    words = ("project", "credential", project.name, "--known-hosts", tmp_path / "hosts")
    code, out, err = manage(*words)
    assert (code, err) == (0, "") and "key SHA256:" in out
    code, _, err = manage("project", "credential", project.name, "--known-hosts", tmp_path / "none")
    assert code == 2 and "cannot be read" in err


def test_the_terminal_shows_where_results_go(project: Project, manage: Manage) -> None:
    UserFactory.create(username="root", is_superuser=True)
    Project.objects.update(publish_url="https://git.example/shop")
    code, out, _ = manage("project", "publishing", project.name)
    assert code == 0 and "https://git.example/shop" in out and "Cat Herder <" in out
