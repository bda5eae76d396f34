"""Questions and failures are pushed to browsers, encrypted for them (W6)."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.test import Client

from tasks_app.core.phases import Phase
from tasks_app.core.types import ALLOW_COMMAND
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    Delivery,
    DeliveryState,
    Membership,
    PushSubscription,
    Question,
    QuestionKind,
    Role,
    Task,
    Transition,
    User,
)
from tasks_app.notifications import web_push
from tasks_app.notifications.delivery import deliver
from tasks_app.notifications.notices import create_notifications
from tasks_app.notifications.web_push import Browser, application_server_key, send_test, subscribe
from tasks_app.services.questions.answers import decide
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, UserFactory
from tests.integration.receivers import Receiver, receiving
from tests.people import acting

pytestmark = pytest.mark.django_db

CURVE = ec.SECP256R1()


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "==")


class FakeBrowser:
    """What a browser keeps of its subscription; it reads what arrives as RFC 8291 says."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(CURVE)
        self.point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.auth = bytes(range(16))

    def at(self, endpoint: str) -> Browser:
        return Browser.checked(endpoint, encoded(self.point), encoded(self.auth))

    def read(self, body: bytes) -> dict[str, Any]:
        salt, length = body[:16], body[20]
        sender, record = body[21 : 21 + length], body[21 + length :]
        shared = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, sender))
        material = derive(shared, self.auth, b"WebPush: info\x00" + self.point + sender, 32)
        key = derive(material, salt, b"Content-Encoding: aes128gcm\x00", 16)
        nonce = derive(material, salt, b"Content-Encoding: nonce\x00", 12)
        text = AESGCM(key).decrypt(nonce, record, None)
        assert text.endswith(b"\x02")
        read: dict[str, Any] = json.loads(text[:-1])
        return read


def derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=info).derive(secret)


@pytest.fixture
def service(settings: Any) -> Iterator[Receiver]:
    listed = (ip_network("127.0.0.0/8"),)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"webhook_allow": listed})
    with receiving(status=201) as receiver:
        yield receiver


@pytest.fixture
def question() -> Question:
    question: Question = QuestionFactory.create(task__phase=Phase.WAITING_FOR_INPUT)
    Transition.objects.create(
        task=question.task, source=Phase.RUNNING, target=Phase.WAITING_FOR_INPUT, reason="asked"
    )
    return question


@pytest.fixture
def ann(question: Question) -> User:
    user: User = MembershipFactory.create(project=question.task.project).user
    return user


def test_a_question_reaches_each_browser_of_who_wants_to_know(
    service: Receiver, question: Question, ann: User
) -> None:
    browsers = [FakeBrowser(), FakeBrowser()]
    for number, browser in enumerate(browsers):
        subscribe(ann, browser.at(f"{service.address()}&browser={number}"), name="Firefox")
    create_notifications()
    assert deliver() == 2
    for path, headers, body in service.posts:
        told = browsers[int(path[-1])].read(body)
        assert told["title"] == str(question.title)
        assert told["url"] == f"/tasks/{question.task_id}/"
        assert [action["action"] for action in told["actions"]] == ["open", "inbox"]
        assert headers["Content-Encoding"] == "aes128gcm" and int(headers["TTL"]) > 0
        assert question.headline.encode() not in body
    assert set(Delivery.objects.values_list("state", flat=True)) == {DeliveryState.SENT}


def test_requests_are_signed_for_the_push_service(service: Receiver, ann: User, settings: Any) -> None:
    subscription = subscribe(ann, FakeBrowser().at(service.address()), name="")
    send_test(subscription)
    deliver()
    scheme, token, key = service.posts[0][1]["Authorization"].replace(",", " ").split()
    assert (scheme, key) == ("vapid", f"k={application_server_key()}")
    signed, _, signature = token.removeprefix("t=").rpartition(".")
    claims = json.loads(decoded(signed.partition(".")[2]))
    assert claims["aud"] == f"http://127.0.0.1:{service.port}"
    assert claims["sub"] == settings.ENVIRONMENT.address
    assert time.time() < claims["exp"] <= time.time() + 24 * 3600, "a longer claim is refused (RFC 8292)"
    assert json.loads(decoded(signed.partition(".")[0])) == {"typ": "JWT", "alg": "ES256"}
    public = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, decoded(application_server_key()))
    raw = decoded(signature)
    both = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public.verify(both, signed.encode(), ec.ECDSA(hashes.SHA256()))
    with pytest.raises(InvalidSignature):
        public.verify(both, b"another claim", ec.ECDSA(hashes.SHA256()))


def test_browsers_that_subscribed_once_know_the_portal_for_good(settings: Any) -> None:
    settings.SECRET_KEY = "a secret of an installation"
    point = "BBErF6jWeeC8ysrk233OSq_vzU1qQEklRy9UBijJp0YW5vftzA7JGsaQpoBYY8GEwjBJ10uMi0GgdXlcAIAnve8"
    assert application_server_key() == point


def test_a_push_service_for_which_nothing_can_be_signed_gets_nothing(service: Receiver, ann: User) -> None:
    send_test(subscribe(ann, FakeBrowser().at("http://[::1]/push"), name=""))
    deliver()
    delivery = Delivery.objects.get()
    assert delivery.state == DeliveryState.FAILED and "could not be signed" in delivery.error


@pytest.mark.parametrize("status", [404, 410])
def test_a_browser_that_is_gone_is_forgotten(service: Receiver, ann: User, status: int) -> None:
    service.status = status
    send_test(subscribe(ann, FakeBrowser().at(service.address()), name=""))
    deliver()
    assert not PushSubscription.objects.exists() and not Delivery.objects.exists()


def test_a_push_service_that_fails_is_tried_again(service: Receiver, ann: User) -> None:
    service.status = 503
    send_test(subscribe(ann, FakeBrowser().at(service.address()), name=""))
    deliver()
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == (DeliveryState.WAITING, 1)
    assert PushSubscription.objects.exists()


def test_a_browser_cannot_make_the_portal_reach_into_its_network(
    service: Receiver, ann: User, settings: Any
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"webhook_allow": ()})
    send_test(subscribe(ann, FakeBrowser().at(service.address()), name=""))
    deliver()
    delivery = Delivery.objects.get()
    assert delivery.state == DeliveryState.FAILED and "inside a network" in delivery.error
    assert not service.posts


def test_nothing_is_pushed_to_who_no_longer_sees_the_project(
    service: Receiver, question: Question, ann: User
) -> None:
    subscribe(ann, FakeBrowser().at(service.address()), name="")
    create_notifications()
    ann.memberships.all().delete()
    deliver()
    assert Delivery.objects.get().state == DeliveryState.DROPPED and not service.posts


def test_long_texts_of_any_script_fit_in_one_record(service: Receiver, ann: User, question: Question) -> None:
    long = "\U0001f408" * 500
    Question.objects.update(items=[{**question.items[0], "question": long}])
    Task.objects.update(title=long[:200])
    browser = FakeBrowser()
    subscribe(ann, browser.at(service.address()), name="")
    create_notifications()
    deliver()
    (_, _, body) = service.posts[0]
    assert len(body) <= 4096, "push services refuse more"
    assert browser.read(body)["title"].startswith(f"Rounding: {long[:150]}")


def test_a_user_has_the_twenty_newest_browsers(ann: User) -> None:
    others = subscribe(UserFactory.create(), FakeBrowser().at("https://push.example/others"), name="")
    made = [
        subscribe(ann, FakeBrowser().at(f"https://push.example/{number}"), name="") for number in range(22)
    ]
    kept = [one.pk for one in PushSubscription.objects.filter(user=ann).order_by("pk")]
    assert kept == [one.pk for one in made[2:]]
    # An old row that comes from another user is the newest of its new one.
    assert subscribe(ann, FakeBrowser().at("https://push.example/others"), name="").pk == others.pk
    kept = [one.pk for one in PushSubscription.objects.filter(user=ann).order_by("pk")]
    assert kept == [others.pk, *(one.pk for one in made[3:])]
    removed = AuditEntry.objects.filter(
        action=Action.NOTIFICATIONS_CHANGED, detail__browser__has_key="removed"
    )
    assert removed.count() == 3


class TestDecidingInANotification:
    @pytest.fixture
    def approval(self, question: Question) -> Question:
        Question.objects.update(
            kind=QuestionKind.APPROVAL,
            items=[{"question": "Allow this command?\n\n`git push`", "options": []}],
            evidence=[{"kind": "command", "title": "Push", "text": "git push"}],
        )
        question.refresh_from_db()
        return question

    def told(self, service: Receiver, user: User) -> dict[str, Any]:
        """What a browser of the user gets."""
        browser = FakeBrowser()
        subscribe(user, browser.at(service.address()), name="")
        create_notifications()
        assert deliver() == 1
        return browser.read(service.posts[-1][2])

    def decided(self, user: User, told: dict[str, Any], verdict: str) -> Any:
        given = {"verdict": verdict, "signature": told["decide"]["signature"]}
        return signed_in(user, enforce_csrf_checks=True).post(told["decide"]["url"], given)

    def test_a_command_that_is_shown_whole_is_approved(
        self, service: Receiver, approval: Question, ann: User
    ) -> None:
        told = self.told(service, ann)
        assert told["title"] == ALLOW_COMMAND
        assert told["body"].splitlines()[0] == "git push"
        assert [action["action"] for action in told["actions"]] == ["approved", "denied"]
        answer = self.decided(ann, told, "approved")
        assert (answer.status_code, answer.json()) == (200, {"message": "Approved."})
        approval.refresh_from_db()
        assert (approval.verdict, approval.answered_by, approval.answered_via) == ("approved", ann, "web")
        assert approval.task.phase == Phase.PENDING

    @pytest.mark.parametrize(
        "command", ["git\u2800push", "git push orig\u0456n", "git\xa0push", "git push é"]
    )
    def test_a_command_that_may_look_like_another_has_no_buttons(
        self, service: Receiver, approval: Question, ann: User, command: str
    ) -> None:
        Question.objects.update(evidence=[{"kind": "command", "title": "Push", "text": command}])
        assert "decide" not in self.told(service, ann)

    def test_a_denial_says_where_it_comes_from(
        self, service: Receiver, approval: Question, ann: User
    ) -> None:
        assert self.decided(ann, self.told(service, ann), "denied").json() == {"message": "Denied."}
        approval.refresh_from_db()
        assert approval.verdict == "denied" and "no reason can be given" in approval.notes

    @pytest.mark.both
    def test_what_was_decided_already_stays_and_is_told(
        self, service: Receiver, approval: Question, ann: User
    ) -> None:
        told = self.told(service, ann)
        bob = MembershipFactory.create(project=approval.task.project, user__username="bob").user
        decide(approval, "denied", by=acting(bob), via=Channel.WEB, notes="Not on Fridays.")
        answer = self.decided(ann, told, "approved")
        assert answer.status_code == 409 and "Denied by bob" in answer.json()["message"]
        approval.refresh_from_db()
        assert approval.verdict == "denied"

    @pytest.mark.parametrize("case", ["nobody", "another user", "another question", "late", "made up"])
    def test_the_signature_is_for_one_user_and_one_question(
        self, case: str, service: Receiver, approval: Question, ann: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = self.told(service, ann)
        other = QuestionFactory.create(task__project=approval.task.project, kind=QuestionKind.APPROVAL)
        user = MembershipFactory.create(project=approval.task.project).user if case == "another user" else ann
        url = f"/questions/{other.pk}/decide/pushed/" if case == "another question" else told["decide"]["url"]
        signature = "x:y:z" if case == "made up" else told["decide"]["signature"]
        if case == "late":
            monkeypatch.setattr(web_push, "KEPT_SECONDS", -1)
        client = Client() if case == "nobody" else signed_in(user, enforce_csrf_checks=True)
        answer = client.post(url, {"verdict": "approved", "signature": signature})
        assert answer.status_code == (302 if case == "nobody" else 403)
        assert all(one.is_open for one in Question.objects.all())

    def test_who_may_only_look_decides_nothing(
        self, service: Receiver, approval: Question, ann: User
    ) -> None:
        told = self.told(service, ann)
        Membership.objects.filter(user=ann).update(role=Role.VIEWER)
        assert self.decided(ann, told, "approved").status_code == 403
        approval.refresh_from_db()
        assert approval.is_open

    def test_a_verdict_that_does_not_exist_is_refused(
        self, service: Receiver, approval: Question, ann: User
    ) -> None:
        assert self.decided(ann, self.told(service, ann), "sent_back").status_code == 400
        approval.refresh_from_db()
        assert approval.is_open

    @pytest.mark.parametrize(
        "evidence",
        [
            [{"kind": "command", "title": "", "text": "make\nrm -r /"}],
            [{"kind": "command", "title": "", "text": "x" * 121}],
            [{"kind": "command", "title": "", "text": "ls"}, {"kind": "text", "title": "", "text": "{}"}],
            [{"kind": "file", "title": "a", "text": "b"}],
            [],
        ],
        ids=["lines", "long", "options", "file", "nothing"],
    )
    def test_what_a_notification_cannot_show_is_decided_on_the_page(
        self, evidence: list[dict[str, str]], service: Receiver, approval: Question, ann: User
    ) -> None:
        Question.objects.update(evidence=evidence)
        told = self.told(service, ann)
        assert "decide" not in told
        assert [action["action"] for action in told["actions"]] == ["open", "inbox"]

    def test_one_of_several_questions_is_decided_on_the_page(
        self, service: Receiver, approval: Question, ann: User
    ) -> None:
        QuestionFactory.create(run=approval.run, step=approval.step, task=approval.task, number=2)
        assert "decide" not in self.told(service, ann)


class TestPage:
    def posted(self, client: Client, endpoint: str, **changed: str) -> None:
        browser = FakeBrowser()
        keys = {"p256dh": encoded(browser.point), "auth": encoded(browser.auth), **changed}
        assert client.post("/me/browsers/", {"endpoint": endpoint, **keys}).status_code == 302

    def test_a_browser_is_stored_once_and_encrypted(self, ann: User) -> None:
        client = signed_in(ann)
        for _ in range(2):
            self.posted(client, "https://push.example/abc")
        subscription = PushSubscription.objects.get()
        assert subscription.user == ann and "abc" not in subscription.encrypted
        page = client.get("/me/notifications/").content.decode()
        assert "push.example" in page and "/abc" not in page

    @pytest.mark.parametrize("endpoint", ["", "file:///etc/passwd", "https://", "https://u:p@x.example/"])
    def test_what_is_no_url_of_a_push_service_is_refused(self, ann: User, endpoint: str) -> None:
        self.posted(signed_in(ann), endpoint)
        assert not PushSubscription.objects.exists()

    @pytest.mark.parametrize(
        "changed", [{"p256dh": "AAAA"}, {"p256dh": ""}, {"p256dh": "A"}, {"auth": "AAAA"}, {"auth": "ü"}]
    )
    def test_keys_that_are_none_are_refused(self, ann: User, changed: dict[str, str]) -> None:
        self.posted(signed_in(ann), "https://push.example/abc", **changed)
        assert not PushSubscription.objects.exists()

    def test_a_browser_changes_hands_with_who_is_logged_in(self, ann: User) -> None:
        bob: User = MembershipFactory.create().user
        for user in (ann, bob):
            self.posted(signed_in(user), "https://push.example/abc")
        assert PushSubscription.objects.get().user == bob

    def test_only_ones_own_browsers_can_be_removed(self, ann: User) -> None:
        self.posted(signed_in(ann), "https://push.example/abc")
        url = f"/me/browsers/{PushSubscription.objects.get().pk}/remove/"
        assert signed_in(MembershipFactory.create().user).post(url).status_code == 404
        assert signed_in(ann).post(url).status_code == 302
        assert not PushSubscription.objects.exists()


def test_strangers_get_what_an_app_needs(client: Client) -> None:
    manifest = client.get("/manifest.webmanifest")
    assert manifest["Content-Type"] == "application/manifest+json"
    assert manifest.json()["display"] == "standalone"
    worker = client.get("/service-worker.js")
    assert worker["Content-Type"].startswith("text/javascript")
    assert "cache.put" not in worker.content.decode()
    assert client.get("/offline/").status_code == 200
