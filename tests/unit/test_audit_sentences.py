"""Entries of the audit log read as sentences: NAME did what to what."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.models import Action, AuditEntry

SAID: list[tuple[Action, str, dict[str, Any], str]] = [
    (
        Action.ANSWERED,
        "Which\n\nred?",
        {"question": 4, "taken_from": 3},
        "answered “Which red?” with the answer to",
    ),
    (
        Action.APPROVED,
        "Allow this command?\n\n`git push`",
        {"question": 4},
        "approved the command `git push`",
    ),
    (Action.PLAN_APPROVED, "Paint it", {}, "approved the plan of Paint it"),
    (Action.PLAN_SENT_BACK, "Review the plan", {}, "sent back a plan"),
    (
        Action.TASK_RETRIED,
        "Paint it",
        {"step": "do", "put_back": True},
        "retried the task Paint it from step “do”, w",
    ),
    (
        Action.TASK_RETRIED,
        "Paint it",
        {"step": "do", "put_back": False},
        "retried the task Paint it from step “do”, with the files kept",
    ),
    (
        Action.TASK_CHANGED,
        "Paint it",
        {"threshold": [3, 5]},
        "changed the threshold of the task Paint it from 3 to 5",
    ),
    (
        Action.SETTINGS_CHANGED,
        "shop",
        {"changed": {"branch": ["main", ""]}},
        "the branch of shop from main to nothing",
    ),
    (
        Action.SETTINGS_CHANGED,
        "shop",
        {"changed": {"a": [1, 2], "b_c": [1, 2]}},
        "changed the a and b c of shop",
    ),
    (Action.SETTINGS_CHANGED, "shop", {"webhook_secret": "removed"}, "changed the webhook secret of shop"),
    (Action.ACCOUNT_CHANGED, "bob", {"changed": ["permissions"]}, "changed the permissions of bob"),
    (Action.ACCOUNT_CHANGED, "bob", {"removed": "user"}, "removed the user bob"),
    (Action.ACCOUNT_CHANGED, "bob", {}, "changed the account of bob"),
    (
        Action.ROLE_GIVEN,
        "bob",
        {"role": "maintainer", "before": "member"},
        "made bob maintainer of shop, before member",
    ),
    (Action.ROLE_TAKEN, "bob", {"role": "member"}, "removed bob from shop"),
    (
        Action.REVIEWED,
        "Paint it",
        {"verdict": "request_changes", "threads": 1},
        "requested changes to Paint it with 1 c",
    ),
    (Action.THREAD_RESOLVED, "Paint it", {"thread": 7}, "resolved thread 7 of Paint it"),
    (
        Action.PULL_REQUEST_ENDED,
        "Paint it",
        {"number": 9, "state": "merged"},
        "merged pull request 9 of Paint it",
    ),
    (Action.DECISION_SUPERSEDED, "D-1: Blue.", {"replaced_by": 2}, "replaced the decision D-1: Blue. by D-2"),
    (Action.LOGIN_FAILED, "bob", {"why": "second factor"}, "failed to log in as bob, at the second factor"),
    (Action.REFUSED, "task 4", {}, "was refused access to task 4"),
    (Action.TASK_CREATED, "Paint it", {"pipeline": "default"}, "created the task Paint it"),
]


@pytest.mark.parametrize(
    ("action", "subject", "detail", "said"), SAID, ids=[one[0] + str(n) for n, one in enumerate(SAID)]
)
def test_w4_an_entry_is_a_sentence(action: Action, subject: str, detail: dict[str, Any], said: str) -> None:
    entry = AuditEntry(action=action, actor_name="Ann", project_name="shop", subject=subject, detail=detail)
    assert str(entry).startswith("Ann ") and said in str(entry)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("detail", [{}, {"changed": []}, {"changed": {}}, {"role": None}, [], None])
def test_w4_entries_of_any_version_can_be_read(action: Action, detail: Any) -> None:
    text = str(AuditEntry(action=action, subject="x", project_name="shop", detail=detail))
    assert text.startswith("the portal ") and "None" not in text
