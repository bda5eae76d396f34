"""Every address that the portal answers, found in its URL configuration, and what the walks know of each.

An address that is not described here fails the walks. Operations of the API come from its own description.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asgiref.sync import async_to_sync
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from tasks_app.models import Question

#: Parts with walks of their own: the admin pages (test_admin_audit), and the API, which describes itself.
OTHER_WALKS = {"admin"}
API = "api/"

#: What a stranger may ask for: the ways in.
OPEN_TO_ALL = {
    *("login", "account_login", "logout", "account_logout", "login_through", "mfa_authenticate"),
    *("manifest", "service_worker", "offline"),
    *("account_inactive", "socialaccount_login_cancelled", "openid_connect_callback", "github_callback"),
    *("account_reset_password", "account_reset_password_done", "account_reset_password_from_key"),
    *("account_reset_password_from_key_done", "account_confirm_email", "invitation", "forge_webhook"),
}
#: What changes something of a task or a question: members may, viewers may look only.
FOR_MEMBERS = {
    *(
        "task_start",
        "task_cancel",
        "task_resume",
        "task_retry",
        "task_threshold",
        "task_priority",
        "task_dismiss",
        "task_publish",
        "task_merge",
    ),
    *("review_send", "thread_add", "thread_reply", "thread_resolve"),
    *("question_answer", "question_dismiss", "question_decide", "question_undo"),
    *("sequence_start", "sequence_cancel", "sequence_resume", "sequence_publish", "sequence_merge"),
    *("project_fetch", "project_calendar"),
    *("decision_confirm", "decision_keep", "decision_retire", "decision_restore"),
    "decision_export",
}
#: What one changes of one's own.
FOR_ONESELF = {
    *("me_theme", "me_sessions_end", "me_session_end", "me_unlink"),
    *("notices_read", "me_notifications_test", "me_token_revoke", "tasks_bulk"),
    *("thread_change", "thread_remove", "diff_viewed"),
    "task_watch",
    *("first_steps_dismiss", "push_subscribe", "push_remove", "push_test"),
}
#: What changes something that maintainers look after.
FOR_MAINTAINERS = {
    *("project_remove", "project_credential_remove", "project_webhook_create", "project_webhook_remove"),
    *(
        "project_member_role",
        "project_member_remove",
        "project_groups",
        "invitation_again",
        "invitation_withdraw",
    ),
    *("target_change", "target_secret", "target_remove", "target_test", "delivery_retry"),
}
#: What only site admins see: for others the answer is 403.
FOR_SITE_ADMINS = {"people", "installation_settings"}
#: What only works with a signature: of a pushed notification, or of a forge.
SIGNED = {"question_push_decide", "forge_webhook"}
#: What no user calls.
FOR_FORGES = {"forge_webhook"}
POST_ONLY = {
    *FOR_MEMBERS,
    *SIGNED,
    *FOR_MAINTAINERS,
    *FOR_ONESELF,
    "logout",
    "account_logout",
    "login_through",
}
#: Forms: a GET shows them, a POST changes something.
FORMS = {
    *(
        "login",
        "task_new",
        "decision_new",
        "decision_import",
        "decision_revise",
        "project_settings",
        "project_notifications",
        "project_publishing",
        "me_notifications",
        "me_working_hours",
        "projects",
        "project_members",
        "people",
        "invitation",
        "me",
        "account_reset_password",
        "account_reauthenticate",
    ),
    *("question_claim", "question_asking"),
    *("mfa_authenticate", "mfa_reauthenticate", "account_change_password", "account_set_password"),
    *("mfa_activate_totp", "mfa_deactivate_totp", "mfa_generate_recovery_codes", "me_tokens"),
}
POSTED = sorted(POST_ONLY | FORMS)
#: One's own things that the walkers do not have: for everybody the answer is 404 or the way elsewhere.
NOT_THERE = {
    *("thread_change", "thread_remove"),
    *("diff_lines", "diff_image", "diff_viewed", "forge_webhook"),
    *("invitation", "login_through", "openid_connect_callback", "github_callback", "me_unlink"),
    *(
        "me_notifications_test",
        "me_token_revoke",
        "push_remove",
        "push_test",
        "mfa_deactivate_totp",
        "mfa_view_recovery_codes",
        "mfa_download_recovery_codes",
    ),
}


def _patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for entry in resolver.url_patterns:
        where = prefix + str(entry.pattern)
        if isinstance(entry, URLPattern):
            yield where, entry
        elif entry.namespace not in OTHER_WALKS and not where.startswith(API):
            yield from _patterns(entry, where)


PATTERNS = {str(pattern.name): pattern for where, pattern in _patterns(get_resolver())}
COUNT = sum(1 for _ in _patterns(get_resolver()))
NAMES = sorted(set(PATTERNS) - {"None"})


def values(question: Question) -> dict[str, Any]:
    """What stands in an address that is about a row of this question's project."""
    return {
        "task_id": question.task_id,
        "question_id": question.pk,
        "project_id": question.task.project_id,
        "sequence_id": question.task.sequence_id,
        "position": 1,
        "number": 1,
        "thread_id": 9999,
        "kind": "reasoning",
        "form": "csv",
        "provider_id": "oidc",
        "uidb36": "1",
        "key": "abc-def",
        "session": "0123abcd",
        "account_id": 9999,
        "event_id": question.run.events.order_by("pk").values_list("pk", flat=True)[0],
        "member_id": 9999,
        "target_id": 9999,
        "delivery_id": 9999,
        "invitation_id": 9999,
        "page": "glossary",
        "token": "no-such-token",
        "token_id": 9999,
        "subscription_id": 9999,
    }


def address(name: str, question: Question) -> str:
    known = values(question)
    return reverse(name, kwargs={key: known[key] for key in PATTERNS[name].pattern.converters})


#: Parts of an address that name a row of a project.
_OF_A_PROJECT = {"task_id", "question_id", "project_id", "sequence_id"}


def is_about_one(name: str) -> bool:
    """Whether the address is about a row of one project, against those that show everybody their own."""
    return bool(_OF_A_PROJECT & set(PATTERNS[name].pattern.converters))


def text_of(response: Any, encoding: str = "utf-8") -> str:
    """The body of an answer, also of one that is made while it is sent."""
    if not response.streaming:
        return str(response.content.decode(encoding))

    async def whole() -> bytes:
        return b"".join([part async for part in response])

    return async_to_sync(whole)().decode(encoding)
