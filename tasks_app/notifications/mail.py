"""Send e-mails, one for all due deliveries of a user."""

from __future__ import annotations

import hashlib
import smtplib
from collections import Counter
from collections.abc import Sequence
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from tasks_app.absolute_urls import absolute_url
from tasks_app.models import EventType, QuestionKind, User
from tasks_app.notifications.message import Message, NotSent, one_line, settings_path, to_lines

_COUNTED_NAMES = {
    EventType.QUESTION: ("question", "questions"),
    EventType.FAILED: ("failure", "failures"),
    EventType.DONE: ("task done", "tasks done"),
    EventType.CANCELLED: ("cancelled task", "cancelled tasks"),
    EventType.UNANSWERED: ("question ended by a rule", "questions ended by rules"),
    EventType.REVIEWED: ("review", "reviews"),
    EventType.NOT_PUBLISHED: ("result not published", "results not published"),
    EventType.TOKEN_SEEN: ("revoked token", "revoked tokens"),
    EventType.TEST: ("test", "tests"),
}


def send(user: User, messages: Sequence[Message]) -> None:
    """Send messages as one e-mail. Raises NotSent. Repetitions have the same Message-ID."""
    keys = hashlib.sha256(" ".join(sorted(message.key for message in messages)).encode()).hexdigest()[:32]
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    mail = EmailMultiAlternatives(
        subject=subject(messages),
        body=render_to_string("notifications/mail.txt", _mail_values(user, messages)),
        to=[user.email],
        headers={
            "Message-ID": f"<{keys}@{domain}>",
            "Auto-Submitted": "auto-generated",
            "X-Auto-Response-Suppress": "All",
        },
    )
    html = render_to_string("notifications/mail.html", _mail_values(user, messages))
    mail.attach_alternative(html, "text/html")
    try:
        mail.send()
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
        status = _smtp_status(error)
        if status is None:
            raise NotSent("The mail server refused the e-mail.") from None
        text = f"The mail server refused the e-mail ({status})."
        raise NotSent(text, status=status, permanent=status >= 500) from None
    except smtplib.SMTPAuthenticationError:
        raise NotSent("The mail server does not accept the login of CATHERDER_EMAIL_URL.") from None
    except (OSError, smtplib.SMTPException) as error:
        raise NotSent(f"The mail server could not be reached ({type(error).__name__}).") from None
    except ValueError as error:  # an invalid e-mail address or header
        raise NotSent(f"The e-mail could not be written ({type(error).__name__}).", permanent=True) from None


def subject(messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        only = messages[0]
        headline = only.headline
        # Headlines of approvals and plans begin with what they are.
        if only.questions and only.questions[0].kind not in (QuestionKind.APPROVAL, QuestionKind.PLAN):
            headline = f"Question: {headline}"
        return one_line(f"[{only.project or 'Cat Herder'}] {headline}", 180)
    counts = Counter(message.event_type for message in messages)
    parts = [f"{number} {_COUNTED_NAMES[event_type][number > 1]}" for event_type, number in counts.items()]
    projects = {message.project for message in messages if message.project}
    about = projects.pop() if len(projects) == 1 else "Cat Herder"
    return one_line(f"[{about}] {', '.join(parts)}", 180)


def _mail_values(user: User, messages: Sequence[Message]) -> dict[str, object]:
    entries = [
        {
            "message": message,
            "questions": [to_lines(question.text, 2000) for question in message.questions],
            "failure": to_lines(message.failure, 2000),
        }
        for message in messages
    ]
    return {"user": user, "entries": entries, "settings_url": absolute_url(settings_path())}


def _smtp_status(error: smtplib.SMTPException) -> int | None:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return next((code for code, _ in error.recipients.values()), None)
    return getattr(error, "smtp_code", None)
