"""Earlier answers to questions like an open one: “Asked before”.

Each item of a question is compared alone. Candidates are the newest answers of the project and those that
full text finds (`answer_index`). They are compared in Python, so the order is the same on both databases, and
the work is bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tasks_app.core.control_characters import visible
from tasks_app.core.similar_questions import (
    Profile,
    normalised_label,
    profile_of,
    question_digest,
    similarity,
)
from tasks_app.models import Question
from tasks_app.services.questions.answer_index import (
    Entry,
    answered_by_people,
    find_by_full_text,
    indexed_words,
    newest_answers,
    same_answers,
    same_entry,
)

Item = Mapping[str, Any]

#: Items below this score are not shown. `tests/quality/README.md` says how good that is.
THRESHOLD = 0.45
#: Candidates whose texts are compared.
CANDIDATES = 50
#: Answers to the same question that are counted; the page says “or more”.
MOST_TIMES = 100
#: Labels and paths that a difference names.
_NAMED = 4


@dataclass(frozen=True)
class EarlierAnswer:
    """An answer of the same project to a question like an item of this one."""

    question: Question
    #: The item of that question which was answered.
    item: Item
    #: From 0 to 1.
    score: float
    #: Whether question, options and multi-select are the same, apart from case and punctuation.
    same: bool
    #: What differs, for people.
    differences: tuple[str, ...] = ()
    #: How often this very item was answered, up to `MOST_TIMES`.
    times: int = 1
    #: How often this answer was used for another question.
    taken: int = 0
    #: The answer in the words of the new question, by its item.
    answers: Mapping[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """What was asked."""
        return str(self.item["question"])

    @property
    def text(self) -> str:
        """The answer in its own words, with its notes."""
        answer = self.question.answers.get(self.headline, "")
        return f"{answer}\n\nNotes: {self.question.notes}" if self.question.notes else answer


def find_similar_answers(question: Question, *, limit: int = 3) -> list[EarlierAnswer]:
    """Return the earlier answers that are most similar to each item, the nearest first, item by item.

    Only answers that people of the same project gave to clarifications. Of items that are the same, the
    latest answer counts.
    """
    if not question.takes_answer or question.is_about_cost:
        return []
    recent = newest_answers(question)
    return [one for item in question.items for one in _nearest_to(question, item, recent, limit)]


def _nearest_to(question: Question, item: Item, recent: list[Entry], limit: int) -> list[EarlierAnswer]:
    wanted = _Wanted(question, item, profile_of([item]), question_digest([item]))
    scored = _scored(wanted, recent)
    ranked = sorted(scored, key=lambda one: (-one.score, -one.question.pk))[:limit]
    return [_described(wanted, one) for one in ranked]


@dataclass(frozen=True)
class _Wanted:
    """The item for which earlier answers are looked up."""

    question: Question
    item: Item
    profile: Profile
    key: str


@dataclass(frozen=True)
class _Candidate:
    question: Question
    item: Item
    key: str
    score: float


def _scored(wanted: _Wanted, recent: list[Entry]) -> list[_Candidate]:
    """Return the similar items, one of each key."""
    found = []
    for other, item in _load(_candidates(wanted, recent)):
        score, key = _score(wanted.profile, wanted.key, item)
        if score >= THRESHOLD:
            found.append(_Candidate(other, item, key, score))
    return found


def _score(profile: Profile, key: str, other: Item) -> tuple[float, str]:
    """Return how alike an item and another one are, and the key of the other one."""
    other_key = question_digest([other])
    return (1.0 if other_key == key else min(similarity(profile, profile_of([other])), 0.99)), other_key


def _candidates(wanted: _Wanted, recent: list[Entry]) -> list[tuple[int, int]]:
    """Return the items whose texts are compared, the newest one of each key: question's id and place."""
    question, key = wanted.question, wanted.key
    words = indexed_words(question.task.project_id, wanted.profile)
    entries: dict[str, Entry] = {}
    for one in (*same_entry(question, key), *recent, *find_by_full_text(question, words, recent)):
        entries.setdefault(one.question_key, one)  # the newest one: each list begins with it
    mine = frozenset(words)
    shared = {one: len(one.words & mine) for one in entries.values()}
    best = sorted(shared, key=lambda one: (one.question_key != key, -shared[one], -one.question_id))
    found = [one for one in best if shared[one] or one.question_key == key]
    return [(one.question_id, one.place) for one in found[:CANDIDATES]]


def _load(places: Collection[tuple[int, int]]) -> list[tuple[Question, Item]]:
    rows = answered_by_people().filter(pk__in={pk for pk, _ in places}).order_by("pk")
    rows = rows.select_related("task", "step", "answered_by").defer("tool_input", "evidence")
    questions = {one.pk: one for one in rows}
    return [
        (question, question.items[place])
        for pk, place in sorted(places)
        if (question := questions.get(pk)) and place < len(question.items)
    ]


def _described(wanted: _Wanted, one: _Candidate) -> EarlierAnswer:
    """Say what differs, and count the answers to this very item: the latest one is shown."""
    same = same_answers(wanted.question.task.project_id, one.key).exclude(question=wanted.question.pk)
    answers = list(same.values_list("question__answered_at", "question_id", "place")[:MOST_TIMES])
    _, latest, place = max(answers, default=(None, one.question.pk, 0))
    if latest != one.question.pk:
        ((question, item),) = _load([(latest, place)])
        one = replace(one, question=question, item=item)
    return EarlierAnswer(
        one.question,
        one.item,
        one.score,
        same=one.score == 1.0,
        differences=tuple(_differences(wanted, one)),
        times=max(1, len(answers)),
        taken=one.question.taken_by.count(),
        answers=_answer_for(wanted.item, one.question, one.item),
    )


def _answer_for(item: Item, earlier: Question, their_item: Item) -> dict[str, str]:
    """Return the earlier answer by this item, with its labels; nothing if there was none."""
    answer = earlier.answers.get(str(their_item["question"]), "")
    return {str(item["question"]): in_own_labels(item, answer)} if answer else {}


def answers_for(question: Question, earlier: Question) -> dict[str, str]:
    """Return the earlier answers by the items of this question; chosen options have this question's labels.

    Each item takes the answer to the most similar one; an item without a counterpart is left out.
    """
    found: dict[str, str] = {}
    for item in question.items:
        profile, key = profile_of([item]), question_digest([item])
        scored = [(_score(profile, key, one)[0], -place) for place, one in enumerate(earlier.items)]
        score, place = max(scored, default=(0.0, 0))
        if score >= THRESHOLD:
            found |= _answer_for(item, earlier, earlier.items[-place])
    return found


def in_own_labels(item: Mapping[str, Any], answer: str) -> str:
    """Return the answer with the labels of this item's options."""
    own = [str(option.get("label", "")) for option in item.get("options") or []]
    labels = {normalised_label(label): label for label in own}
    parts = answer.split(", ") if item.get("multiSelect") else [answer]
    return ", ".join(labels.get(normalised_label(part), part) for part in parts)


def find_reused_answer(
    question: Question, answers: Mapping[str, str], earlier_id: int | None
) -> Question | None:
    """Return the earlier question if a person of the project has given one of these answers to it."""
    if earlier_id is None or earlier_id == question.pk:
        return None
    there = answered_by_people().filter(task__project=question.task.project_id)
    earlier = there.filter(pk=earlier_id).select_related("task").first()
    theirs = answers_for(question, earlier) if earlier else {}
    return earlier if any(answers.get(asked) == answer for asked, answer in theirs.items()) else None


def _differences(wanted: _Wanted, one: _Candidate) -> list[str]:
    """Return what differs between this item and the earlier one, for people."""
    question, other = wanted.question, one.question
    found = [] if one.score == 1.0 else _differing_texts(wanted.item, one.item)
    their_paths = profile_of([one.item]).paths
    if wanted.profile.paths != their_paths:
        found.append(f"other paths: {_named(sorted(their_paths))}" if their_paths else "no paths")
    if question.step.name != other.step.name:
        found.append(f"other step: {other.step.name}")
    if question.task.pipeline != other.task.pipeline:
        found.append(f"other pipeline: {other.task.pipeline}")
    return found


def _differing_texts(item: Item, other: Item) -> list[str]:
    mine, theirs = normalised_label(str(item["question"])), normalised_label(str(other["question"]))
    return [*(["other wording"] if mine != theirs else []), *_differing_options(item, other)]


def _differing_options(item: Item, other: Item) -> list[str]:
    mine, theirs = _labels_by_key(item), _labels_by_key(other)
    if not mine and not theirs:
        return []
    found = []
    if new := [label for key, label in mine.items() if key not in theirs]:
        found.append(f"options that it did not have: {_named(new)}")
    if gone := [label for key, label in theirs.items() if key not in mine]:
        found.append(f"options that only it had: {_named(gone)}")
    several = [bool(one.get("multiSelect")) for one in (item, other)]
    if several[0] != several[1]:
        found.append("several could be chosen" if several[1] else "only one could be chosen")
    return found


def _labels_by_key(item: Item) -> dict[str, str]:
    options = item.get("options") or []
    return {normalised_label(label): label for option in options if (label := str(option.get("label", "")))}


def _named(shown: list[str]) -> str:
    more = len(shown) - _NAMED
    return visible(", ".join(shown[:_NAMED])) + (f" and {more} more" if more > 0 else "")
