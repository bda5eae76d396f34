"""Approving and denying in a pushed notification: which questions, and the signature that comes with them.

A service worker has no CSRF token. The signature stands in for it: it is made for one user and one question,
and reaches only a browser of that user, encrypted. It is no login: the user's session is needed as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.core import signing
from django.urls import reverse

from tasks_app.models import Question, QuestionKind, User
from tasks_app.notifications.message import Message
from tasks_app.notifications.plain_text import one_line
from tasks_app.permissions import Principal, questions_answerable_by

#: A push service keeps a message for this long while the browser is closed; the signature lasts as long.
KEPT_SECONDS = 24 * 3600
#: What the agent is told of a denial in a notification, which has no field for a reason.
DENIED_NOTES = "Denied in a notification, where no reason can be given."
#: A longer command would not be shown completely by all platforms.
_MAX_COMMAND = 120
# Not the name of this module: signatures of an earlier version stay valid.
_SALT = "tasks_app.notifications.push_decisions"


@dataclass(frozen=True)
class PushApproval:
    """What a notification shows of an approval, and how it sends the verdict."""

    command: str
    url: str
    signature: str


def approval_for(message: Message, user: User) -> PushApproval | None:
    """Return what the user may decide in the notification; None unless it is one command, shown whole."""
    if len(message.questions) != 1 or message.questions[0].kind != QuestionKind.APPROVAL:
        return None
    answerable = questions_answerable_by(Principal.unrestricted(user)).open()
    question = answerable.filter(pk=message.questions[0].id).first()
    command = whole_command(question) if question else ""
    if question is None or not command:
        return None
    url = reverse("question_push_decide", args=[question.pk])
    return PushApproval(command, url, signing.dumps([question.pk, user.pk], salt=_SALT))


def whole_command(question: Question) -> str:
    """Return the command if the approval is about nothing else and it fits into one line; else "".

    It is printable ASCII: other characters may look like these, like blanks, or like nothing.
    """
    kinds = [piece.get("kind") for piece in question.evidence if piece.get("kind") != "rule"]
    text = question.evidence[0]["text"] if kinds == ["command"] else ""
    is_plain = text.isascii() and text.isprintable()
    return text if is_plain and text == one_line(text, _MAX_COMMAND) else ""


def is_signed(signature: str, question: Question, user: User) -> bool:
    """Return whether it came with a notification to this user about this question, and not too long ago."""
    try:
        signed = signing.loads(signature, salt=_SALT, max_age=KEPT_SECONDS)
    except signing.BadSignature:
        return False
    return bool(signed == [question.pk, user.pk])
