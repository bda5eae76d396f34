"""W6 on the wire: webhooks, with TLS too, a mail server and chat services, each a real one on loopback."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.core import mail as django_mail
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.models import EventType, User
from tasks_app.notifications import chat, mail, webhook
from tasks_app.notifications.message import Message, NotSent, OpenQuestion
from tasks_app.notifications.targets import validate_url
from tests.integration.receivers import Receiver, certificate, mail_server, receiving

LOOPBACK = [ip_network("127.0.0.0/8")]
HOSTILE = "@channel **really**? <!everyone> [here](http://evil.example)"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def message(**about: Any) -> Message:
    return Message(
        **{
            "key": "6f1c0e1e-0000-4000-8000-000000000001",
            "event_type": EventType.QUESTION,
            "at": timezone.now(),
            "project": "shop",
            "project_id": 1,
            "url": "https://herder.example.org/tasks/7/#question-9",
            "task": "Round the totals",
            "task_id": 7,
            "step": "plan",
            "questions": [
                OpenQuestion(
                    id=9,
                    kind="clarification",
                    title="Rounding: How are half cents rounded?",
                    text="How are half cents rounded?",
                    url="https://herder.example.org/x",
                )
            ],
            **about,
        }
    )


def post(address: str, *, listed: Any = LOOPBACK) -> int:
    return webhook.post(
        address, message().as_json(), secret="secret", key="k-1", at=int(time.time()), listed=listed
    )


def test_a_post_is_signed_and_says_what_it_is(receiver: Receiver) -> None:
    assert post(receiver.address()) == 200
    ((path, headers, body),) = receiver.posts
    assert path == "/hook?a=1" and headers["Host"] == f"127.0.0.1:{receiver.port}"
    assert headers["X-Cat-Herder-Event"] == "question" and headers["X-Cat-Herder-Delivery"] == "k-1"
    at = int(headers["X-Cat-Herder-Signature"].split(",")[0].removeprefix("t="))
    assert headers["X-Cat-Herder-Signature"] == webhook.signature("secret", body, at=at)
    assert json.loads(body)["headline"] == "Rounding: How are half cents rounded?"


def test_nothing_goes_into_a_network_that_is_not_listed(receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1"):
        with pytest.raises(NotSent, match="inside a network") as refusal:
            post(receiver.address(host), listed=[])
        assert refusal.value.permanent
    assert receiver.posts == []


def test_the_connection_goes_to_the_address_that_was_looked_at(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that says something else when it is asked again changes nothing."""
    asked: list[str] = []
    plain = socket.getaddrinfo

    def turncoat(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "turncoat.example":
            return plain(host, port, *args, **kwargs)
        asked.append(host)
        return plain("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", turncoat)
    assert post(receiver.address("turncoat.example"), listed=[ip_network("127.0.0.1/32")]) == 200
    assert asked == ["turncoat.example"]


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.location = 307, receiver.address()
    with pytest.raises(NotSent, match="redirects are not followed"):
        post(receiver.address())
    assert len(receiver.posts) == 1


@pytest.mark.parametrize(("status", "permanent"), [(500, False), (404, False), (429, False), (410, True)])
def test_a_refusal_is_noted_with_its_status(receiver: Receiver, status: int, permanent: bool) -> None:
    receiver.status = status
    with pytest.raises(NotSent, match=f"It answered {status}") as refusal:
        post(receiver.address())
    assert (refusal.value.status, refusal.value.permanent) == (status, permanent)


def test_an_absent_server_is_a_plain_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(NotSent, match="The connection failed"):
        post(f"http://127.0.0.1:{port}/")


def test_a_receiver_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "TOTAL_SECONDS", 0.3)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_drip, args=[listener, over])
        thread.start()
        with pytest.raises(NotSent):
            post(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        over.set()
        thread.join()


def _drip(listener: socket.socket, over: threading.Event) -> None:
    connection, _ = listener.accept()
    with connection:
        while not over.wait(0.02):
            try:
                connection.sendall(b"HTTP")
            except OSError:
                return


def test_tls_with_the_right_name_is_taken_and_with_another_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path, name="localhost")
    plain = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda: plain(cafile=str(made)))
    with receiving(tls=made) as receiver:
        assert post(receiver.address("localhost", "https")) == 200
        with pytest.raises(NotSent, match="certificate is not accepted"):
            post(receiver.address("127.0.0.1", "https"))
        monkeypatch.undo()
        with pytest.raises(NotSent, match="certificate is not accepted"):
            post(receiver.address("localhost", "https"))
    assert len(receiver.posts) == 1


# ---- e-mail ----


@pytest.fixture
def over_smtp(settings: Any) -> Any:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_TIMEOUT = "127.0.0.1", 5
    settings.DEFAULT_FROM_EMAIL = "Cat Herder <herder@example.org>"
    return settings


def test_a_mail_arrives_at_a_mail_server(over_smtp: Any) -> None:
    with mail_server() as server:
        over_smtp.EMAIL_PORT = server.port
        mail.send(User(email="ann@example.org"), [message()])
    ((recipient, text),) = server.mails
    assert recipient == "ann@example.org"
    assert "Subject: [shop] Question: Rounding: How are half cents rounded?" in text
    assert "Message-ID: <" in text and "@example.org>" in text and "Auto-Submitted: auto-generated" in text
    assert "https://herder.example.org/tasks/7/#question-9" in text


def test_a_recipient_that_does_not_exist_is_given_up(over_smtp: Any) -> None:
    with mail_server(refuses="550 nobody of that name") as server:
        over_smtp.EMAIL_PORT = server.port
        with pytest.raises(NotSent, match=r"refused the e-mail .550.") as refusal:
            mail.send(User(email="nobody@example.org"), [message()])
    assert refusal.value.permanent


def test_a_mail_server_that_is_down_is_tried_again(over_smtp: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        over_smtp.EMAIL_PORT = gone.getsockname()[1]
    with pytest.raises(NotSent, match="could not be reached") as refusal:
        mail.send(User(email="ann@example.org"), [message()])
    assert not refusal.value.permanent and not getattr(django_mail, "outbox", [])


# ---- chat ----


def test_a_chat_service_gets_place_headline_and_our_link_and_nothing_alive(receiver: Receiver) -> None:
    hostile = [OpenQuestion(9, "clarification", HOSTILE, HOSTILE, "x")]
    address = f"mmost://127.0.0.1:{receiver.port}/3ccdd113474722377935511fc85d3dd4"
    assert chat.send(address, message(questions=hostile), listed=LOOPBACK) == 200
    said = json.loads(receiver.posts[0][2])["text"]
    assert "shop › Round the totals › plan" in said and "really" in said
    assert "https://herder.example.org/tasks/7/#question-9" in said
    for alive in ("@channel", "**", "<!", "](", "http://evil", "evil.example"):
        assert alive not in said


def test_a_chat_service_inside_a_network_is_not_connected_to(receiver: Receiver) -> None:
    address = f"mmost://127.0.0.1:{receiver.port}/3ccdd113474722377935511fc85d3dd4"
    with pytest.raises(NotSent, match="inside a network") as refusal:
        chat.send(address, message(), listed=[])
    assert refusal.value.permanent and receiver.posts == []


def test_a_chat_service_that_refuses_is_tried_again(receiver: Receiver) -> None:
    receiver.status = 500
    address = f"ntfy://127.0.0.1:{receiver.port}/topic"
    with pytest.raises(NotSent, match="answered 500") as refusal:
        chat.send(address, message(), listed=LOOPBACK)
    assert not refusal.value.permanent


@pytest.mark.parametrize("medium", ["page", "email", "pigeon", ""])
def test_only_webhooks_and_chats_have_a_url(medium: str) -> None:
    with pytest.raises(BadInput, match="choose webhook or chat") as refused:
        validate_url(medium, "https://example.org/")
    assert refused.value.where == "medium"


@pytest.mark.parametrize(
    "address",
    [
        *("json://localhost/", "xml://localhost/", "form://localhost/", "syslog://", "dbus://", "windows://"),
        *("file:///etc/passwd", "mailto://a:b@example.org", "apprise://localhost/x", "nothing at all"),
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template=/etc/passwd",
    ],
)
def test_only_listed_services_are_taken(address: str) -> None:
    with pytest.raises(BadInput):
        chat.check(address)


@pytest.mark.parametrize(
    "address",
    [
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/",
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "mmosts://chat.example.org/3ccdd113474722377935511fc85d3dd4",
    ],
)
def test_addresses_of_services_are_taken_and_shown_without_their_secrets(address: str) -> None:
    chat.check(address)
    shown = chat.masked_url(address)
    assert "TIiajkdnl" not in shown and "3ccdd" not in shown
