"""The index of the admin pages: models in groups by area, instead of by the package that defines them.

Not in `admin/`, whose modules register with this site while they are imported.
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest

#: The names of models by area, in the order in which they are shown. Others follow as “Other”.
GROUPS: dict[str, tuple[str, ...]] = {
    "People and login": (
        *("User", "WorkingHours", "Membership", "Invitation", "ApiToken", "BrowserSession"),
        *("EmailAddress", "Authenticator", "SocialAccount", "Group"),
    ),
    "Projects": ("Project", "MemberGroup", "Calendar", "PublishCredential"),
    "Tasks": (
        *(
            "Sequence",
            "Task",
            "Step",
            "Run",
            "Setup",
            "Question",
            "Asked",
            "Rung",
            "AnswerDraft",
            "IndexedAnswer",
        ),
        *("Event", "EventBlock", "SessionEntry", "Transition", "SequenceTransition"),
    ),
    "Reviews": ("Review", "ReviewThread", "ThreadComment", "ViewedFile"),
    "Decisions": ("Decision", "DecisionEvent"),
    "Publishing": ("Publication", "PullRequest"),
    "Notifications": ("Notice", "Delivery", "Target", "Preferences", "PushSubscription"),
    "Audit": ("AuditEntry", "LogEntry"),
    "Sums of days": ("ModelUsage", "PersonUsage", "DayFigures", "SummedDay", "ChangedDay"),
    "Installation": (*("Installation", "WorkerBeat", "WorkerToken", "IdempotencyKey", "Change", "SentSpan"),),
}
OTHER = "Other"


class GroupedAdminSite(AdminSite):
    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the groups in place of Django's apps; the page of one app stays as it is."""
        apps = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        models = {model["object_name"]: model for app in apps for model in app["models"]}
        groups = [
            _group(area, [models.pop(name) for name in names if name in models])
            for area, names in GROUPS.items()
        ]
        return [group for group in (*groups, _group(OTHER, list(models.values()))) if group["models"]]


def _group(area: str, models: list[Any]) -> dict[str, Any]:
    label = area.lower().replace(" ", "-")
    return {"name": area, "app_label": label, "app_url": "", "has_module_perms": True, "models": models}
