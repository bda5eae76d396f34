"""All rules of who may do what.

A rule takes a `Principal` and raises TypeError for a bare user, so that the limits of an API token cannot be
forgotten. A row that the principal may not see does not exist for it: the response is 404. What it may see
but not do raises NotAllowed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404

from tasks_app.core.errors import NotAllowed
from tasks_app.models import (
    ACTING_ROLES,
    DECISION_SHOWN_WITH,
    ApiToken,
    AuditEntry,
    Channel,
    Decision,
    EventType,
    Membership,
    Notice,
    Project,
    Question,
    ReviewThread,
    Role,
    Sequence,
    Step,
    Target,
    Task,
    User,
)
from tasks_app.models.audit import AuditEntryQuerySet
from tasks_app.models.decision import DecisionQuerySet
from tasks_app.models.notification import NoticeQuerySet
from tasks_app.models.question import QuestionQuerySet
from tasks_app.models.task import TaskQuerySet

#: Roles that may change a project's settings and members.
MAINTAINING_ROLES = frozenset({Role.MAINTAINER})


@dataclass(frozen=True)
class Principal:
    """The acting user and, if one is used, the API token with its limits.

    The limits are read from the token alone, so a user who is fetched anew has neither more nor fewer.
    """

    user: User
    token: ApiToken | None

    def __post_init__(self) -> None:
        if not isinstance(self.user, User):
            raise TypeError(f"A principal is a user who is logged in, not {self.user!r}.")
        if self.token is not None and self.token.user_id != self.user.pk:
            raise ValueError("A token acts for its owner only.")

    @classmethod
    def unrestricted(cls, user: User) -> Principal:
        """Return the user without the limits of a token, for browsers and terminals."""
        return cls(user, None)

    @classmethod
    def of_token(cls, token: ApiToken) -> Principal:
        return cls(token.user, token)

    @cached_property
    def project_ids(self) -> frozenset[int] | None:
        """The projects that the token is restricted to, which may be none; None if it is not restricted."""
        if self.token is None or not self.token.restricted:
            return None
        return frozenset(self.token.projects.values_list("pk", flat=True))

    @property
    def is_site_admin(self) -> bool:
        """Whether everything is allowed in all projects, which a restricted token never is."""
        return self.user.is_superuser and self.project_ids is None


# Querysets of what a principal may see or act on.


def projects_visible_to(principal: Principal) -> QuerySet[Project]:
    return Project.objects.filter(_in_projects_of(principal))


def projects_actable_by(principal: Principal) -> QuerySet[Project]:
    """Return the projects in which the principal may create tasks, answer and cancel."""
    return Project.objects.filter(_in_projects_of(principal, roles=ACTING_ROLES))


def projects_maintained_by(principal: Principal) -> QuerySet[Project]:
    """Return the projects whose settings and members the principal may change."""
    return Project.objects.filter(_in_projects_of(principal, roles=MAINTAINING_ROLES))


def tasks_visible_to(principal: Principal) -> TaskQuerySet:
    return Task.objects.filter(_in_projects_of(principal, path="project"))


def decisions_visible_to(principal: Principal) -> DecisionQuerySet:
    return Decision.objects.filter(_in_projects_of(principal, path="project"))


def sequences_visible_to(principal: Principal) -> QuerySet[Sequence]:
    return Sequence.objects.filter(_in_projects_of(principal, path="project"))


def questions_visible_to(principal: Principal) -> QuestionQuerySet:
    return Question.objects.filter(_in_projects_of(principal, path="task__project"))


def questions_answerable_by(principal: Principal) -> QuestionQuerySet:
    return Question.objects.filter(task__project__in=projects_actable_by(principal))


def notices_visible_to(principal: Principal) -> NoticeQuerySet:
    """Return the user's own notices about projects that they still see, and about their tokens."""
    shown = _in_projects_of(principal, path="task__project")
    if shown and principal.token is None:  # an empty condition, that of site admins, is true of all
        shown |= Q(event_type=EventType.TOKEN_SEEN)
    return Notice.objects.filter(shown, user=principal.user)


def tokens_visible_to(principal: Principal) -> QuerySet[ApiToken]:
    """Return the user's own tokens; for a token that is restricted to some projects, only itself."""
    own = ApiToken.objects.filter(user=principal.user)
    if principal.token is not None and principal.token.restricted:
        return own.filter(pk=principal.token.pk)
    return own


def audit_entries_visible_to(principal: Principal) -> AuditEntryQuerySet:
    """Return all entries for site admins; for others the entries of projects that they maintain."""
    if principal.is_site_admin:
        return AuditEntry.objects.all()
    return AuditEntry.objects.filter(project__in=projects_maintained_by(principal))


def users_who_see(project_id: int) -> QuerySet[User]:
    """Return the active users who may see the project: members and site admins."""
    roles = Membership.objects.filter(user=OuterRef("pk"), project=project_id)
    return User.objects.filter(Exists(roles) | Q(is_superuser=True), is_active=True)


def users_who_act_in(project_id: int) -> QuerySet[User]:
    """Return the active users who may answer questions of the project: by their role, and site admins."""
    roles = Membership.objects.filter(user=OuterRef("pk"), project=project_id, role__in=ACTING_ROLES)
    return User.objects.filter(Exists(roles) | Q(is_superuser=True), is_active=True)


def projects_visible_to_each(users: Collection[User]) -> dict[int, frozenset[int]]:
    """Return the ids of the projects that each user may see, by the user's id. At most two queries."""
    members = {user.pk for user in users if not user.is_superuser}
    seen: dict[int, set[int]] = {user_id: set() for user_id in members}
    memberships = Membership.objects.filter(user__in=members)
    for user_id, project_id in memberships.values_list("user", "project"):
        seen[user_id].add(project_id)
    admins = {user.pk for user in users} - members
    every: frozenset[int] = frozenset()
    if admins:
        every = frozenset(Project.objects.values_list("pk", flat=True))
    return {user_id: frozenset(ids) for user_id, ids in seen.items()} | dict.fromkeys(admins, every)


def _in_projects_of(principal: Principal, *, path: str = "", roles: Collection[Role] | None = None) -> Q:
    """Filter rows whose project (at the lookup `path`) the principal sees, or in which it has one of `roles`.

    Use it in one filter(), so that user and role are matched in the same membership.
    """
    if not isinstance(principal, Principal):
        raise TypeError(f"Permissions are asked for a Principal, not for {principal!r}.")
    prefix = f"{path}__" if path else ""
    within_limits = Q()
    if principal.project_ids is not None:
        within_limits = Q(**{f"{prefix}pk__in": principal.project_ids})
    if principal.user.is_superuser:
        return within_limits
    membership = Q(**{f"{prefix}memberships__user": principal.user})
    if roles is not None:
        membership &= Q(**{f"{prefix}memberships__role__in": roles})
    return within_limits & membership


# Single rows by id from a request: 404 if the principal may not see the row.


class HiddenRow(Http404):
    """The row exists, but not for this user: a 404 for them, and an entry of the audit log for others."""

    def __init__(self, user: User, row: Model) -> None:
        super().__init__("There is no such row.")
        self.user = user
        self.row = row


_Row = TypeVar("_Row", bound=Model)


def _visible_or_404(principal: Principal, visible: QuerySet[_Row], **lookup: object) -> _Row:
    found = visible.filter(**lookup).first()
    if found is None:
        hidden = visible.model._default_manager.filter(**lookup).first()
        raise HiddenRow(principal.user, hidden) if hidden else Http404("There is no such row.")
    return found


def project_or_404(principal: Principal, project_id: int) -> Project:
    return _visible_or_404(principal, projects_visible_to(principal), pk=project_id)


def project_named_or_404(principal: Principal, name: str) -> Project:
    return _visible_or_404(principal, projects_visible_to(principal), name=name)


def task_or_404(principal: Principal, task_id: int) -> Task:
    tasks = tasks_visible_to(principal).select_related("project", "created_by", "sequence")
    return _visible_or_404(principal, tasks, pk=task_id)


def sequence_or_404(principal: Principal, sequence_id: int) -> Sequence:
    sequences = sequences_visible_to(principal).select_related("project", "created_by")
    return _visible_or_404(principal, sequences, pk=sequence_id)


def step_or_404(principal: Principal, task_id: int, position: int) -> Step:
    return get_object_or_404(Step, task=task_or_404(principal, task_id), position=position)


def thread_or_404(principal: Principal, task_id: int, number: int) -> ReviewThread:
    """Return a sent thread by its number in the task."""
    threads = task_or_404(principal, task_id).threads.select_related("task__project", "review__author")
    return get_object_or_404(threads, number=number)


def draft_thread_or_404(principal: Principal, task_id: int, thread_id: int) -> ReviewThread:
    """Return a thread of the user's own draft. Drafts of others do not exist for them."""
    drafts = task_or_404(principal, task_id).threads.select_related("task__project", "review")
    return get_object_or_404(drafts, pk=thread_id, number=None, review__author=principal.user)


def question_or_404(principal: Principal, question_id: int) -> Question:
    # Of one question, who claimed or answered it is mostly nobody yet. It is read when it is needed.
    questions = questions_visible_to(principal).select_related("task__project", "step", "run")
    return _visible_or_404(principal, questions, pk=question_id)


def decision_or_404(principal: Principal, project: str, number: int) -> Decision:
    """Return a decision of a project by its number."""
    return decision_of_or_404(project_named_or_404(principal, project), number)


def decision_of_or_404(project: Project, number: int) -> Decision:
    """Return a decision of a project that the principal sees."""
    rows = project.decisions.with_counts().select_related(*DECISION_SHOWN_WITH)
    return get_object_or_404(rows, number=number)


def token_or_404(principal: Principal, token_id: int) -> ApiToken:
    return get_object_or_404(tokens_visible_to(principal), pk=token_id)


# What a principal may do in a project that it sees.


def may_see(principal: Principal, project: Project) -> bool:
    return projects_visible_to(principal).filter(pk=project.pk).exists()


def may_act(principal: Principal, project: Project) -> bool:
    return projects_actable_by(principal).filter(pk=project.pk).exists()


def may_maintain(principal: Principal, project: Project) -> bool:
    return projects_maintained_by(principal).filter(pk=project.pk).exists()


def require_actor(principal: Principal, project: Project) -> None:
    """Raise NotAllowed if the principal may only look."""
    if not may_act(principal, project):
        raise NotAllowed(f"Your role in {project} does not allow this. A maintainer can change your role.")


def require_human_word(project: Project, via: Channel, url: str) -> None:
    """Raise NotAllowed if a program decides for a person, unless the project's maintainers allow that.

    `url` is where the person can decide.
    """
    if via == Channel.MCP and not project.overrides.get("programs_decide"):
        raise NotAllowed(
            "Approvals, plans, costs and reviews need the word of a person, in a form that the program shows "
            f"or at {url}. A maintainer can let programs decide, in the settings of the project."
        )


def require_maintainer(principal: Principal, project: Project, what: str) -> None:
    """Raise NotAllowed for all but maintainers and site admins; `what` says in the message what they do."""
    if not may_maintain(principal, project):
        raise NotAllowed(f"Your role in {project} does not allow this. Its maintainers {what}.")


def require_site_admin(principal: Principal, to: str) -> None:
    """Raise NotAllowed for all others, and for a site admin's token that is restricted to some projects."""
    if not principal.is_site_admin:
        raise NotAllowed(f"Only a site admin can {to}, and not with a token that is restricted to projects.")


# Rules about the user's own account and tokens.


def may_see_budget_of(principal: Principal, user: User) -> bool:
    """Return whether the amounts of the user's budget may be shown: to them and to site admins."""
    return principal.user.pk == user.pk or principal.is_site_admin


def require_unrestricted(principal: Principal, to: str) -> None:
    """Raise NotAllowed for a token that is restricted to some projects."""
    if principal.project_ids is not None:
        raise NotAllowed(f"This token is restricted to some projects and so cannot {to}.")


def require_no_token(principal: Principal, to: str) -> None:
    """Raise NotAllowed for every API token."""
    if principal.token is not None:
        raise NotAllowed(f"An API token cannot {to}. Do it in the portal.")


def require_token_owner(principal: Principal, token: ApiToken) -> None:
    if not principal.is_site_admin and not tokens_visible_to(principal).filter(pk=token.pk).exists():
        raise NotAllowed("This token belongs to somebody else. Its owner or a site admin can revoke it.")


def require_target_owner(principal: Principal, target: Target) -> None:
    """Raise NotAllowed for all but maintainers of the target's project and the owner of a personal chat."""
    if target.project is not None:
        require_maintainer(principal, target.project, "manage notifications")
    elif target.user_id != principal.user.pk:
        raise NotAllowed("This is another user’s chat.")
