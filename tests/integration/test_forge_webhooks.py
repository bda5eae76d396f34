"""Calls of forges (V7): signed ones have a pull request looked at, and nothing else of them is believed."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.errors import NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.encryption import Purpose, decrypt
from tasks_app.forges.port import ForgeKind
from tasks_app.forges.webhooks import affected_pull_requests, is_signed
from tasks_app.models import Action, AuditEntry, Membership, Project, PullRequest, Role, User
from tasks_app.services.publishing.settings import (
    called_project,
    create_webhook_secret,
    remove_webhook_secret,
)
from tasks_app.web import publishing
from tests.addresses import text_of
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, TaskFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

URL = "https://git.example.org/team/shop.git"
COMMIT = "a" * 40
Sign = Callable[[str, bytes], dict[str, str]]


def _hex(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def github(secret: str, body: bytes) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={_hex(secret, body)}"}


def gitlab(secret: str, body: bytes) -> dict[str, str]:
    return {"X-Gitlab-Token": secret}


def gitlab_signed(secret: str, body: bytes) -> dict[str, str]:
    key = b64decode(secret.removeprefix("whsec_"))
    signature = b64encode(hmac.new(key, b"msg-1.1777777777." + body, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": "msg-1",
        "webhook-timestamp": "1777777777",
        "webhook-signature": f"v1,b3RoZXI= v1,{signature}",
    }


def forgejo(secret: str, body: bytes) -> dict[str, str]:
    return {"X-Forgejo-Signature": _hex(secret, body)}


def gitea(secret: str, body: bytes) -> dict[str, str]:
    return {"X-Gitea-Signature": _hex(secret, body)}


SIGNED = [
    (ForgeKind.GITHUB, github),
    (ForgeKind.GITLAB, gitlab),
    (ForgeKind.GITLAB, gitlab_signed),
    (ForgeKind.FORGEJO, forgejo),
    (ForgeKind.FORGEJO, gitea),
]
ABOUT = b'{"action": "closed", "number": 7}'


@pytest.fixture
def maintainer(project: Project) -> User:
    found: User = MembershipFactory.create(project=project, role=Role.MAINTAINER).user
    return found


@pytest.fixture
def pull_request(project: Project) -> PullRequest:
    """One that would be looked at in ten minutes, and was a minute ago."""
    Project.objects.update(publish_url=URL, forge="github")
    project.refresh_from_db()
    now = timezone.now()
    return PullRequest.objects.create(
        project=project,
        task=TaskFactory.create(project=project, phase=Phase.DONE),
        kind=ForgeKind.GITHUB,
        url=URL,
        number=7,
        head_commit=COMMIT,
        looked_at=now - timedelta(minutes=1),
        state_as_of=now - timedelta(minutes=1),
        next_look_at=now + timedelta(minutes=10),
    )


@pytest.fixture
def secret(pull_request: PullRequest, maintainer: User) -> str:
    return create_webhook_secret(pull_request.project, by=acting(maintainer))


def call(project_id: int, body: bytes, headers: dict[str, str]) -> Any:
    client = Client(enforce_csrf_checks=True)
    return client.post(
        reverse("forge_webhook", args=[project_id]), body, content_type="application/json", headers=headers
    )


def is_due() -> bool:
    time.sleep(0.002)  # SQLite's clock counts milliseconds: what is due now is due in the next one
    return PullRequest.objects.due().exists()


@pytest.mark.parametrize(("kind", "sign"), SIGNED)
def test_a_signed_call_has_the_pull_request_looked_at(
    pull_request: PullRequest, secret: str, kind: ForgeKind, sign: Sign
) -> None:
    Project.objects.update(forge=kind)
    assert not is_due()
    answer = call(pull_request.project_id, ABOUT, sign(secret, ABOUT))
    assert (answer.status_code, answer.text) == (202, "Accepted.\n")
    assert not answer.cookies
    assert is_due()
    assert Project.objects.get().webhook_called_at is not None


@pytest.mark.parametrize(("kind", "sign"), SIGNED)
def test_another_signature_is_refused_like_an_unknown_project(
    pull_request: PullRequest, secret: str, kind: ForgeKind, sign: Sign
) -> None:
    Project.objects.update(forge=kind)
    good, other = sign(secret, ABOUT), sign("whsec_" + b64encode(b"x" * 32).decode(), ABOUT)
    name = list(good)[-1]
    answers = [
        call(pull_request.project_id, ABOUT, other),
        call(pull_request.project_id, ABOUT, {}),
        call(pull_request.project_id, ABOUT, {**good, name: ""}),
        call(pull_request.project_id, ABOUT, {**good, name: good[name][:-1]}),
        call(pull_request.project_id, ABOUT, {**good, name: good[name].upper()}),
        call(pull_request.project_id, ABOUT, {**good, name: "\xe9"}),
        call(pull_request.project_id + 1, ABOUT, good),
        call(10**19, ABOUT, good),
    ]
    if sign is not gitlab:  # its token says nothing of the body
        answers.append(call(pull_request.project_id, ABOUT + b" ", good))
    remove_webhook_secret(Project.objects.get(), by=acting(Membership.objects.get().user))
    answers.append(call(pull_request.project_id, ABOUT, good))
    assert {(one.status_code, one.text) for one in answers} == {(404, answers[0].text)}
    assert not is_due() and Project.objects.get().webhook_called_at is None


@pytest.mark.parametrize("kind", ForgeKind)
def test_the_signature_of_another_forge_is_none(kind: ForgeKind) -> None:
    secret = "whsec_" + b64encode(b"k" * 32).decode()
    for of, sign in SIGNED:
        assert is_signed(kind, secret, ABOUT, sign(secret, ABOUT)) == (of == kind)


@pytest.mark.parametrize(
    "payload",
    [
        {"number": 7},
        {"pull_request": {"number": 7}},
        {"issue": {"number": 7}, "comment": {"body": "x"}},
        {"object_attributes": {"iid": 7}},
        {"object_attributes": {"id": 1}, "merge_request": {"iid": 7}},
        {"check_run": {"pull_requests": [{"number": 3}, {"number": 7}]}},
        {"sha": COMMIT, "state": "success"},
        {"check_suite": {"head_sha": COMMIT, "pull_requests": []}},
        {"object_attributes": {"sha": COMMIT, "status": "success"}},
    ],
)
def test_payloads_of_the_forges_name_the_pull_request(
    pull_request: PullRequest, secret: str, payload: dict[str, Any]
) -> None:
    body = json.dumps(payload).encode()
    assert call(pull_request.project_id, body, github(secret, body)).status_code == 202
    assert is_due()


def test_github_can_send_a_form(pull_request: PullRequest, secret: str) -> None:
    body = urlencode({"payload": ABOUT.decode()}).encode()
    assert call(pull_request.project_id, body, github(secret, body)).status_code == 202
    assert is_due()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"null",
        b"[1]",
        b"payload=",
        b"payload=%7B",
        b"payload=\xff",
        b'{"number": "7"}',
        b'{"number": true}',
        b'{"number": -7}',
        b'{"number": 1e999}',
        b'{"number": 99999999999999999999}',
        b'{"number": 8}',
        b'{"pull_request": 7, "issue": [[7]], "sha": "\\u0000"}',
        b"[" * 100_000,
        b'{"zen": "Keep it logically awesome.", "hook_id": 7}',
    ],
)
def test_a_signed_call_about_nothing_known_changes_nothing(
    pull_request: PullRequest, secret: str, body: bytes
) -> None:
    assert call(pull_request.project_id, body, github(secret, body)).status_code == 202
    assert not is_due()


def test_what_a_call_says_is_not_believed(pull_request: PullRequest, secret: str) -> None:
    body = json.dumps(
        {"number": 7, "pull_request": {"number": 7, "state": "closed", "merged": True, "title": "Mine"}}
    ).encode()
    call(pull_request.project_id, body, github(secret, body))
    pull_request.refresh_from_db()
    assert (pull_request.state, pull_request.title) == ("open", "")


def test_a_repeated_call_does_not_have_it_looked_at_all_the_time(
    pull_request: PullRequest, secret: str
) -> None:
    """Whoever records a call can send it again: at most one look in ten seconds comes of it."""
    PullRequest.objects.update(looked_at=timezone.now(), state_as_of=timezone.now())
    for _ in range(3):
        call(pull_request.project_id, ABOUT, github(secret, ABOUT))
    assert not is_due()
    pull_request.refresh_from_db()
    assert pull_request.next_look_at < timezone.now() + timedelta(seconds=11)


@pytest.mark.parametrize(
    "values", [{"state": "merged"}, {"fault": "The rate limit is reached."}, {"url": "https://a.example/b/c"}]
)
def test_ended_faulty_and_other_ones_are_not_looked_at_sooner(
    pull_request: PullRequest, secret: str, values: dict[str, str]
) -> None:
    PullRequest.objects.update(**values)
    assert call(pull_request.project_id, ABOUT, github(secret, ABOUT)).status_code == 202
    pull_request.refresh_from_db()
    assert pull_request.next_look_at > timezone.now() + timedelta(minutes=9)


def test_a_long_call_is_refused_before_it_is_looked_at(
    pull_request: PullRequest, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "LONGEST_CALL", len(ABOUT))
    long = ABOUT + b" "
    assert call(pull_request.project_id, long, github(secret, long)).status_code == 413
    assert call(pull_request.project_id + 1, long, {}).status_code == 413
    assert not is_due()
    assert call(pull_request.project_id, ABOUT, github(secret, ABOUT)).status_code == 202


TWO_CALLS = {"webhook_refused": "2/m/ip", "webhook_signed": "2/m/key"}


def test_calls_are_counted(pull_request: PullRequest, secret: str, settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = TWO_CALLS
    answers = [call(pull_request.project_id, ABOUT, github(secret, ABOUT)) for _ in range(3)]
    assert [one.status_code for one in answers] == [202, 202, 429]
    assert answers[2]["Retry-After"] == "60"
    PullRequest.objects.update(next_look_at=timezone.now() + timedelta(minutes=10))
    call(pull_request.project_id, ABOUT, github(secret, ABOUT))
    assert not is_due()


def test_calls_without_a_signature_do_not_use_up_the_limit_of_the_forge(
    pull_request: PullRequest, secret: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ACCOUNT_RATE_LIMITS = TWO_CALLS
    monkeypatch.setattr(publishing, "LONGEST_CALL", len(ABOUT))
    refused = [call(pull_request.project_id, body, {}) for body in (ABOUT, ABOUT + b" ", ABOUT, ABOUT)]
    assert [one.status_code for one in refused] == [404, 413, 429, 429]
    assert call(pull_request.project_id, ABOUT, github(secret, ABOUT)).status_code == 202
    assert is_due()


def test_a_changed_secret_key_of_the_installation_ends_the_webhook(
    pull_request: PullRequest, secret: str, settings: Any
) -> None:
    settings.SECRET_KEY = "another"
    assert called_project(pull_request.project_id, ABOUT, github(secret, ABOUT)) is None


def test_a_long_list_of_pull_requests_is_cut() -> None:
    body = json.dumps({"check_run": {"pull_requests": [{"number": n} for n in range(1, 500)]}})
    assert len(affected_pull_requests(body.encode()).numbers) == 100


def test_the_secret_is_shown_once_and_stored_encrypted(pull_request: PullRequest, maintainer: User) -> None:
    project, client = pull_request.project, signed_in(maintainer)
    settings_page = reverse("project_publishing", args=[project.pk])
    assert "Create webhook" in text_of(client.get(settings_page))
    shown = text_of(client.post(reverse("project_webhook_create", args=[project.pk])))
    project.refresh_from_db()
    secret = decrypt(project.encrypted_webhook_secret, Purpose.FORGE_WEBHOOKS)
    assert secret.startswith("whsec_") and len(b64decode(secret[6:])) == 32
    assert secret in shown and reverse("forge_webhook", args=[project.pk]) in shown
    assert secret not in project.encrypted_webhook_secret
    later = text_of(client.get(settings_page))
    assert secret not in later and "not called yet" in later
    entry = AuditEntry.objects.get(action=Action.SETTINGS_CHANGED)
    assert entry.detail == {"webhook_secret": "created"}
    call(project.pk, ABOUT, github(secret, ABOUT))
    assert "last called" in text_of(client.get(settings_page))


def test_a_new_secret_replaces_the_old_one(pull_request: PullRequest, secret: str, maintainer: User) -> None:
    new = create_webhook_secret(Project.objects.get(), by=acting(maintainer))
    assert new != secret
    assert call(pull_request.project_id, ABOUT, github(secret, ABOUT)).status_code == 404
    assert call(pull_request.project_id, ABOUT, github(new, ABOUT)).status_code == 202


def test_it_is_removed(pull_request: PullRequest, secret: str, maintainer: User) -> None:
    page = signed_in(maintainer).post(
        reverse("project_webhook_remove", args=[pull_request.project_id]), follow=True
    )
    assert "Webhook removed." in text_of(page) and "Create webhook" in text_of(page)
    assert Project.objects.get().encrypted_webhook_secret == ""


def test_members_neither_create_nor_remove_it(pull_request: PullRequest, secret: str) -> None:
    member = MembershipFactory.create(project=pull_request.project, role=Role.MEMBER).user
    project = Project.objects.get()
    for action in (create_webhook_secret, remove_webhook_secret):
        with pytest.raises(NotAllowed):
            action(project, by=acting(member))
    assert call(project.pk, ABOUT, github(secret, ABOUT)).status_code == 202


def test_a_script_makes_and_removes_it(pull_request: PullRequest, maintainer: User) -> None:
    script, path = Script(maintainer), f"/projects/{pull_request.project.name}/publishing"
    made = script.send("put", f"{path}/webhook").json()
    assert made["url"].endswith(reverse("forge_webhook", args=[pull_request.project_id]))
    assert call(pull_request.project_id, ABOUT, github(made["secret"], ABOUT)).status_code == 202
    shown = script.get(path).json()
    assert shown["webhook_url"] == made["url"] and shown["webhook_called_at"]
    assert made["secret"] not in str(shown)
    assert script.send("delete", f"{path}/webhook").status_code == 204
    assert script.get(path).json()["webhook_url"] == ""
