"""How long questions waited for people: by kind, step, who was asked, and rung of the ladder (Q6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.db.models import Q

from tasks_app.core.ladder import RungAction
from tasks_app.models import Asked, AskedBy, Question, QuestionKind, QuestionState, Rung
from tasks_app.permissions import Principal
from tasks_app.services.usage.day_sums import BY_PEOPLE
from tasks_app.services.usage.statistics import Spread, spread
from tasks_app.services.usage.usage import Period, in_visible_projects

#: So many of the newest questions are looked at: medians of days cannot be added up.
MOST_QUESTIONS = 1_000
COLUMNS = ["by", "name", "answered", "open", "unanswered", "median_seconds", "p90_seconds"]


class Stage(StrEnum):
    """How far a question had climbed its ladder, in order."""

    AT_ONCE = "at_once"
    REMINDED = "reminded"
    EVERYBODY = "everybody"


_STAGES = {RungAction.REMIND: Stage.REMINDED, RungAction.EVERYBODY: Stage.EVERYBODY}


@dataclass(frozen=True)
class Waits:
    """Questions that have one thing in common: how many were answered, how many are still open.

    `seconds` is the time from question to answer by the clock; None without an answer.
    """

    name: str = ""
    answered: int = 0
    open: int = 0
    seconds: Spread | None = None

    @property
    def questions(self) -> int:
        return self.answered + self.open


@dataclass(frozen=True)
class AnswerTimes:
    """Questions of a period that people answered, decided or skipped, or that still wait for them.

    If `is_cut`, only the newest are looked at. `nobody_asked` counts those that were put to all because no
    rule named anybody. `rules` counts by its name what a rule ended, because nobody had answered; no other
    figure counts those. A question counts for each `people` who were asked, also if it was handed over later;
    "" stands for nobody in particular. `stages` have the names of `Stage`.
    """

    total: Waits = field(default_factory=Waits)
    nobody_asked: int = 0
    rules: Mapping[str, int] = field(default_factory=dict)
    is_cut: bool = False
    kinds: Sequence[Waits] = ()
    steps: Sequence[Waits] = ()
    people: Sequence[Waits] = ()
    stages: Sequence[Waits] = ()

    @property
    def ended_by_rule(self) -> int:
        return sum(self.rules.values())

    @property
    def parts(self) -> Mapping[str, Sequence[Waits]]:
        return {"kind": self.kinds, "step": self.steps, "person": self.people, "rung": self.stages}


#: How long each of several questions waited, in seconds; None for those that are open.
_Times = list[float | None]


def answer_times(principal: Principal, period: Period, project: str) -> AnswerTimes:
    """Return the times of the projects that the principal may see, or of one of them, from three queries."""
    looked_at = BY_PEOPLE | Q(state__in=[QuestionState.OPEN, QuestionState.UNANSWERED])
    asked_then = Question.objects.filter(looked_at, **period.conditions("asked_at"))
    visible = in_visible_projects(asked_then, principal, project, "task__project__in")
    newest = visible.order_by("-asked_at", "-pk").values_list(
        "pk", "kind", "step__name", "asked_at", "answered_at", "ended_by_rule"
    )
    found = list(newest[: MOST_QUESTIONS + 1])
    rows = [
        (pk, kind, step, (answered_at - asked_at).total_seconds() if answered_at else None)
        for pk, kind, step, asked_at, answered_at, rule in found[:MOST_QUESTIONS]
        if not rule
    ]
    ids = [pk for pk, *_ in rows]
    people: dict[int, set[str]] = defaultdict(set)
    asked = Asked.objects.filter(question__in=ids).exclude(asked_by=AskedBy.OPINION).order_by()
    for pk, name in asked.values_list("question", "user__username"):
        people[pk].add(name)
    stages: dict[int, Stage] = defaultdict(lambda: Stage.AT_ONCE)
    done = Rung.objects.filter(question__in=ids, action__in=_STAGES, done_at__isnull=False)
    for pk, action in done.order_by("position").values_list("question", "action"):
        if stages[pk] != Stage.EVERYBODY:  # a later reminder changes nothing
            stages[pk] = _STAGES[RungAction(action)]
    by_kind, by_step, by_person, by_stage = (defaultdict[str, _Times](list) for _ in range(4))
    for pk, kind, step, took in rows:
        by_kind[kind].append(took)
        by_step[step].append(took)
        by_stage[stages[pk]].append(took)
        for name in people[pk] or {""}:
            by_person[name].append(took)
    return AnswerTimes(
        _waits("", [took for *_, took in rows]),
        len(by_person[""]),
        Counter(rule for *_, rule in found[:MOST_QUESTIONS] if rule),
        len(found) > MOST_QUESTIONS,
        [_waits(kind, by_kind[kind]) for kind in QuestionKind.values if by_kind[kind]],
        _most_first(by_step),
        _most_first(by_person),
        [_waits(stage, by_stage[stage]) for stage in Stage if by_stage[stage]],
    )


def _waits(name: str, times: _Times) -> Waits:
    answered = [took for took in times if took is not None]
    return Waits(name, len(answered), len(times) - len(answered), spread(answered) if answered else None)


def _most_first(groups: Mapping[str, _Times]) -> list[Waits]:
    found = [_waits(name, times) for name, times in groups.items() if times]
    return sorted(found, key=lambda one: (-one.questions, one.name))


def answer_time_rows(times: AnswerTimes) -> Iterator[dict[str, Any]]:
    """Yield the times as rows of a CSV: of all questions, of each part, and of each rule that ended some."""
    for by, part in {"all": [times.total], **times.parts}.items():
        for one in part:
            yield {
                "by": by, "name": one.name, "answered": one.answered, "open": one.open,
                "unanswered": times.ended_by_rule if by == "all" else "",
                "median_seconds": round(one.seconds.median, 1) if one.seconds else "",
                "p90_seconds": round(one.seconds.p90, 1) if one.seconds else "",
            }  # fmt: skip
    for rule, unanswered in sorted(times.rules.items()):
        yield {
            "by": "rule", "name": rule, "answered": 0, "open": 0, "unanswered": unanswered,
            "median_seconds": "", "p90_seconds": "",
        }  # fmt: skip
