"""Cost limits (M8): budgets of projects and people for a month, soft limits of tasks, dollars for a run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil, inf
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, Max, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.agent.port import BUDGET_SPENT, DollarsLeft
from tasks_app.core.amounts import dollars
from tasks_app.core.errors import BadAmount
from tasks_app.core.phases import Phase
from tasks_app.models import ModelUsage, Outcome, PersonUsage, Project, Question, Run, Step, Task, User
from tasks_app.permissions import Principal, may_see_budget_of
from tasks_app.services.tasks import cancel_locked
from tasks_app.services.usage.day_sums import split_days


def with_limits(task_id: int) -> Task:
    """Return the task with what its limits are made of, read anew: somebody may have changed them."""
    return Task.objects.select_related("project", "created_by").get(pk=task_id)


def dollars_for_run(task: Task) -> DollarsLeft:
    """Return the dollars that budgets of the month and the soft limit leave over."""
    return DollarsLeft(of_budgets=budgets_of_task(task).left, of_soft_limit=dollars_left(task))


def soft_limit_leaves_least(task: Task) -> bool:
    """Return whether the task has a soft limit, and no budget of the month leaves less than it."""
    left, budget = dollars_left(task), budgets_of_task(task).left
    return left is not None and (budget is None or left <= budget)


# Budgets of projects and people for the calendar month in UTC: what is spent, and whose wait ends (M8).


#: Sums of the same costs in another order differ by less than this.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Budget:
    """The dollars of a project or a person, its `owner`, for this month, and how many of them are spent."""

    dollars: float
    spent: float
    owner: Project | User | None = field(default=None, compare=False)

    @property
    def is_used_up(self) -> bool:
        """Whether no run may begin."""
        return self.left <= _ROUNDING

    @property
    def left(self) -> float:
        """Dollars that are left; negative if more was spent."""
        return self.dollars - self.spent

    @property
    def month(self) -> str:
        """The name of this month."""
        return f"{timezone.now():%B}"

    def leaves(self, needed: float) -> bool:
        """Return whether a run may begin that needs these dollars, or any if that is not known."""
        return not self.is_used_up and self.left >= needed - _ROUNDING

    def spent_in_words(self, viewer: Principal | None, needed: float) -> str:
        """Return a sentence that the budget is spent, or leaves less than `needed`.

        It has the amounts of the budget if the viewer may see them. Everybody who sees a task sees the
        budget of its project. Without a viewer everybody reads it.
        """
        if isinstance(self.owner, User):
            is_own = viewer is not None and viewer.user.pk == self.owner.pk
            name = "Your budget" if is_own else f"The budget of {self.owner.shown_name}"
            shows_amounts = viewer is not None and may_see_budget_of(viewer, self.owner)
        else:
            name, shows_amounts = f"The budget of {self.owner}", True
        amounts = f": {dollars(self.spent)} of {dollars(self.dollars)}" if shows_amounts else ""
        if self.is_used_up:
            return f"{name} for {self.month} is spent{amounts}."
        needs = f"less than the {dollars(needed)} that the next request needs"
        amounts = amounts and f" ({dollars(self.spent)} of {dollars(self.dollars)} spent)"
        return f"{name} for {self.month} leaves {needs}{amounts}."


@dataclass(frozen=True)
class Budgets:
    """The budgets for one person's tasks in one project; None without a budget.

    `needed` are the dollars of a task's next request, if one did not fit; 0 if that is not known.
    """

    project: Budget | None = None
    person: Budget | None = None
    needed: float = 0.0

    @property
    def left(self) -> float | None:
        """Dollars that are left of the tightest budget; None if nothing limits them."""
        return min((one.left for one in (self.project, self.person) if one), default=None)

    @property
    def are_too_small(self) -> bool:
        """Whether no run may begin."""
        return bool(self._too_small)

    @property
    def _too_small(self) -> list[Budget]:
        return [one for one in (self.project, self.person) if one and not one.leaves(self.needed)]

    def problem(self, viewer: Principal | None = None) -> str:
        """Return which budgets are too small, in sentences for the viewer; empty if runs may begin."""
        return " ".join(one.spent_in_words(viewer, self.needed) for one in self._too_small)


def month_start(at: datetime) -> datetime:
    """Return when the calendar month of this time began, in UTC."""
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(at: datetime) -> datetime:
    """Return when the month after this time begins."""
    return month_start(month_start(at) + timedelta(days=31))


def budget_of(owner: Project | User) -> Budget | None:
    """Return the owner's budget with what runs of this month have cost, or None if they have none.

    A person's budget counts the runs of the tasks that they created, in every project.
    """
    return _budgets([owner], of_projects=isinstance(owner, Project)).get(owner.pk)


def _budgets(owners: Iterable[Project | User], *, of_projects: bool) -> dict[int, Budget]:
    """Return the budgets by the owners' ids, without owners that have none. Three queries at most."""
    having = {one.pk: one for one in owners if one.monthly_budget_usd is not None}
    limits = {pk: float(one.monthly_budget_usd or 0) for pk, one in having.items()}
    if not limits:
        return {}
    days = split_days(month_start(timezone.now()).date())
    runs = Run.objects.filter(days.without_sums("started_at"))
    sums: QuerySet[Any] = PersonUsage.objects.filter(project=None)
    owner_of_sums, owner_of_run = "user", "step__task__created_by"
    if of_projects:
        sums, owner_of_sums, owner_of_run = ModelUsage.objects.all(), "project", "step__task__project"
    spent: dict[int, float] = defaultdict(float)
    for rows, owner in ((sums.filter(days.with_sums()), owner_of_sums), (runs, owner_of_run)):
        of_owners = rows.filter(**{f"{owner}__in": limits}).order_by().values_list(owner)
        for pk, cost in of_owners.annotate(Sum("cost_usd")):
            spent[pk] += cost
    return {pk: Budget(dollars=limit, spent=spent[pk], owner=having[pk]) for pk, limit in limits.items()}


def budgets_of_people(users: Iterable[User]) -> dict[int, Budget]:
    """Return the budgets of users by their ids, without users that have none."""
    return _budgets(users, of_projects=False)


def budgets_of(project: Project, user: User | None) -> Budgets:
    """Return the budgets for the tasks that this person creates in the project."""
    return Budgets(project=budget_of(project), person=budget_of(user) if user else None)


def budgets_of_task(task: Task) -> Budgets:
    """Return the budgets of a task, with project and creator as they were read with it."""
    return budgets_of_tasks([task])[task.pk]


def budgets_of_tasks(tasks: Collection[Task]) -> dict[int, Budgets]:
    """Return the budgets of each task by its id. Seven queries at most for tasks with project and creator."""
    projects = _budgets({task.project for task in tasks}, of_projects=True)
    users = _budgets({task.created_by for task in tasks if task.created_by}, of_projects=False)
    needed = _needed_by(tasks) if projects or users else {}
    return {
        task.pk: Budgets(
            projects.get(task.project_id), users.get(task.created_by_id or 0), needed.get(task.pk) or 0.0
        )
        for task in tasks
    }


def _needed_by(tasks: Iterable[Task]) -> dict[int, float | None]:
    """Return what the last run of each task's present attempt could not pay, by the ids of the tasks."""
    current = Run.objects.filter(step__task=OuterRef("pk"), number__gte=F("step__first_run"))
    last = Subquery(current.order_by("-pk").values("needed_usd")[:1])
    rows = Task.objects.filter(pk__in=[task.pk for task in tasks]).annotate(needed=last)
    return dict(rows.order_by().values_list("pk", "needed"))


def end_waits_for_budgets() -> None:
    """Make tasks due whose project and creator have enough of their budgets left, however they came to it."""
    waiting = Task.objects.filter(
        phase=Phase.WAITING_FOR_RESET, waits_for_budget=True, resets_at__gt=Now()
    ).order_by()
    rows = waiting.select_related("project", "created_by").only("project", "created_by")
    due = [pk for pk, budgets in budgets_of_tasks(list(rows)).items() if not budgets.are_too_small]
    if due:
        waiting.filter(pk__in=due).update(resets_at=Now())


# The soft cost limit of a task: when it is reached, what is asked then, and what an answer means (M8).


#: The portal asks, no tool of an agent.
WAY = "portal"
END = "End the task"
FINISH = "Finish early"
#: What the agent may still spend to end its present step in order, as a share of the soft limit, and bounds.
_FINISHING_SHARE = 0.2
_FINISHING_LEAST = 0.1
_FINISHING_MOST = 2.0
_CENT = 0.01
_STAYS = "What is there can be reviewed and published."
#: “Go on, up to” is what the option was called in questions of earlier versions.
_AMOUNT = re.compile(r"(?:allow |go on, up to )?\$?\s*([0-9]{1,7}(?:\.[0-9]{1,2})?)(?: more)?", re.IGNORECASE)


def spent_by(task_id: int) -> float:
    """Return the dollars that the runs of the task have cost."""
    runs = Run.objects.filter(step__task=task_id).order_by()
    return float(runs.aggregate(spent=Sum("cost_usd"))["spent"] or 0)


def limit_of(task: Task) -> float | None:
    """Return the cost at which the task asks next: its soft limit, or what a human has allowed since.

    None if it does not ask: without a soft limit, or once the hard one is what it may cost.
    """
    if task.soft_cost_usd is None:
        return None
    allowed = task.questions.about_costs().answered().aggregate(most=Max("allowed_usd"))["most"]
    limit = max(task.soft_cost_usd, float(allowed or 0))
    if task.max_cost_usd is not None and limit >= task.max_cost_usd - _ROUNDING:
        return None
    return limit


def dollars_left(task: Task) -> float | None:
    """Return what the task may cost before it asks; negative if it has cost more, None if it does not ask."""
    limit = limit_of(task)
    return None if limit is None else limit - spent_by(task.pk)


def is_reached(task: Task) -> bool:
    """Return whether a human must be asked before the task goes on."""
    left = dollars_left(task)
    return left is not None and left <= _ROUNDING


def question_at_limit(task: Task, step: Step) -> dict[str, Any]:
    """Return the items of the question and, as its `tool_input`, the amounts that it is about."""
    spent = spent_by(task.pk)
    unspent = max((limit_of(task) or 0) - spent, 0)  # not enough for the next request
    more = _ceil_to_cents(unspent + (task.soft_cost_usd or 0))
    to_finish, most = 0.0, None
    if step.current_runs.exists():
        share = _ceil_to_cents(_FINISHING_SHARE * (task.soft_cost_usd or 0))
        to_finish = min(max(share, _FINISHING_LEAST), _FINISHING_MOST)
    if task.max_cost_usd is not None:
        most = _ceil_to_cents(task.max_cost_usd - spent)
        more, to_finish = min(more, most), min(to_finish, most)
    said = f"The task continues and asks again once it has cost {dollars(spent + more)}."
    if more == most:
        said = f"The task continues and fails at {dollars(spent + more)}, its hard limit (limits.maxCostUsd)."
    options = [
        {"label": allow_more(more), "description": said, "preview": ""},
        {"label": FINISH, "description": _what_finishing_means(step, to_finish), "preview": ""},
        {"label": END, "description": "The task is cancelled. Its branch stays.", "preview": ""},
    ]
    item = {
        "question": _question_text(task, step, spent),
        "header": "Cost",
        "options": options,
        "multiSelect": False,
    }
    amounts = {"spent_usd": spent, "most_usd": most, "finish_usd": to_finish}
    return {"items": [item], "tool_input": amounts}


def _what_finishing_means(step: Step, to_finish: float) -> str:
    if not to_finish:
        return f"No further step starts, including “{step.name}”. {_STAYS}"
    return (
        f"The agent finishes step “{step.name}” for at most ${to_finish:.2f} and says what is left undone. "
        f"No further step begins. {_STAYS}"
    )


def _question_text(task: Task, step: Step, spent: float) -> str:
    done = task.steps.filter(phase=Phase.DONE).count()
    begun = "has begun" if step.current_runs.exists() else "is next"
    limit = limit_of(task) or 0.0
    reached = f"The task has reached its soft limit of {dollars(limit)}: it has cost {dollars(spent)}."
    if spent < limit - _ROUNDING:
        reached = (
            f"The task has cost {dollars(spent)}, and its next request would not fit below its soft limit of "
            f"{dollars(limit)}."
        )
    return (
        f"{reached}\n\n{done} of {task.steps.count()} steps done; step “{step.name}” {begun}. "
        "The task waits for the answer and spends nothing until then."
    )


def _ceil_to_cents(amount: float) -> float:
    return max(_CENT, ceil(round(amount * 100, 6)) / 100)


def allow_more(amount: float) -> str:
    """Return the answer that lets a task cost this much more."""
    return f"Allow ${amount:.2f} more"


@dataclass(frozen=True)
class CostAnswer:
    """An answer about costs in its usual words, and its meaning.

    `allowed_usd` is what the task may cost then, None if it is to end; `finishes` says if it finishes early.
    """

    answer: str
    allowed_usd: float | None = None
    finishes: bool = False


def cost_answer_in(question: Question, answer: str) -> CostAnswer:
    """Return what the answer means.

    Raises BadAmount unless the answer is one of the options or an amount within the hard limit.
    """
    said, spent = answer.strip().casefold(), float(question.tool_input["spent_usd"])
    to_finish = question.tool_input.get("finish_usd")  # not in questions from before this could be chosen
    if said == END.casefold():
        return CostAnswer(END)
    if said == FINISH.casefold() and to_finish is not None:
        return CostAnswer(FINISH, spent + float(to_finish), finishes=True)
    amount = _amount_in(question, answer)
    return CostAnswer(allow_more(amount), spent + amount)


def _amount_in(question: Question, answer: str) -> float:
    found = _AMOUNT.fullmatch(" ".join(answer.split()))
    if found is None:
        shown = answer.strip()[:40]
        raise BadAmount(f"Choose an option, or enter an amount of dollars such as 2.50, not “{shown}”.")
    amount, most = float(found[1]), question.tool_input.get("most_usd")
    if amount < _CENT:
        raise BadAmount("Enter at least 0.01 dollars, or end the task.")
    if most is not None and amount > most:
        raise BadAmount(f"Enter at most {most:.2f} dollars: the task may not cost more (limits.maxCostUsd).")
    return amount


def must_end_early(task: Task, step: Step) -> str:
    """Return why a task that is to be finished early ends before the step's next run; "" if it does not.

    The step does not begin any more; or its agent has ended it, or has spent what was left for that.
    """
    if not task.is_finishing_early or (decided := task.questions.finishings().last()) is None:
        return ""
    last = step.current_runs.last()
    if last is None:
        return "it did not begin any more"
    if decided.handed_in_id and last.pk >= decided.handed_in_id and last.outcome == Outcome.FINISHED:
        return "its checks did not pass"
    ran_out = decided.handed_in_id and last.pk >= decided.handed_in_id and last.error == BUDGET_SPENT
    most = min(decided.allowed_usd or 0, task.max_cost_usd or inf)
    if ran_out or spent_by(task.pk) >= most - _ROUNDING:
        return "what was left to end it is spent"
    return ""


def end_if_decided(task: Task) -> bool:
    """Cancel a task that a human decided to end. Its row must be locked. Return whether it was cancelled."""
    question = task.questions.endings().select_related("answered_by").last()
    if question is None:
        return False
    user = question.answered_by
    who = user.shown_name if user else "somebody"
    cost = dollars(float(question.tool_input["spent_usd"]))
    cancel_locked(task, reason=f"{who} ended it at its soft limit: it had cost {cost}", by=user)
    return True


def end_decided_tasks() -> None:
    """Cancel the tasks that are to end, also tasks that no worker would take for a while."""
    ending = Exists(Question.objects.endings().filter(task=OuterRef("pk")))
    due = Task.objects.due().filter(phase=Phase.PENDING, soft_cost_usd__isnull=False)
    for task_id in list(due.filter(ending).order_by().values_list("pk", flat=True)):
        with transaction.atomic():
            task = due.select_for_update(of=("self",)).select_related("project").filter(pk=task_id).first()
            if task is not None:  # a worker has claimed it meanwhile, and ends it
                end_if_decided(task)
