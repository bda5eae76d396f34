"""Earlier answers to questions like an open one: “Asked before”.

Candidates are the newest answers of the project and those that full text finds (`answer_index`). They are
compared in Python, so the order is the same on both databases, and the work is bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tasks_app.core.control_characters import visible
from tasks_app.core.similar_questions import Profile, normalised_label, profile_of, similarity
from tasks_app.models import Question
from tasks_app.services.answer_index import (
    Entry,
    answered_by_people,
    find_by_full_text,
    indexed_words,
    newest_answers,
    question_key,
    same_entry,
    same_questions,
)

#: Questions below this score are not shown. `tests/quality/README.md` says how good that is.
THRESHOLD = 0.45
#: Candidates whose texts are compared.
CANDIDATES = 50
#: Answers to the same question that are counted; the page says “or more”.
MOST_TIMES = 100
#: Labels and paths that a difference names.
_NAMED = 4


@dataclass(frozen=True)
class EarlierAnswer:
    """An answer of the same project to a question like this one."""

    question: Question
    #: From 0 to 1.
    score: float
    #: Whether question, options and multi-select are the same, apart from case and punctuation.
    same: bool
    #: What differs, for people.
    differences: tuple[str, ...] = ()
    #: How often this very question was answered, up to `MOST_TIMES`.
    times: int = 1
    #: How often this answer was used for another question.
    taken: int = 0
    #: The answers in the words of the new question, by its items.
    answers: Mapping[str, str] = field(default_factory=dict)


def nearest(question: Question, *, limit: int = 3) -> list[EarlierAnswer]:
    """Return the earlier answers to the most similar questions, the nearest first.

    Only answers that people of the same project gave to clarifications. Of questions that are the same, the
    latest answer counts.
    """
    if not question.takes_answer or question.is_about_cost:
        return []
    profile, key = profile_of(question.items), question_key(question)
    scored = _scored(question, profile, key)
    ranked = sorted(scored, key=lambda one: (-one.score, -one.question.pk))[:limit]
    return [_described(question, profile, one) for one in ranked]


@dataclass(frozen=True)
class _Candidate:
    question: Question
    key: str
    score: float


def _scored(question: Question, profile: Profile, key: str) -> list[_Candidate]:
    """Return the similar questions, one of each key."""
    found = []
    for other in _load(_candidate_ids(question, profile, key)):
        other_key = question_key(other)
        score = 1.0 if other_key == key else min(similarity(profile, profile_of(other.items)), 0.99)
        if score >= THRESHOLD:
            found.append(_Candidate(other, other_key, score))
    return found


def _candidate_ids(question: Question, profile: Profile, key: str) -> list[int]:
    """Return the ids of the questions whose texts are compared, the newest one of each key."""
    words = indexed_words(question.task.project_id, profile)
    recent = newest_answers(question)
    entries: dict[str, Entry] = {}
    for one in (*same_entry(question, key), *recent, *find_by_full_text(question, words, recent)):
        entries.setdefault(one.question_key, one)  # the newest one: each list begins with it
    wanted = frozenset(words)
    shared = {one: len(one.words & wanted) for one in entries.values()}
    best = sorted(shared, key=lambda one: (one.question_key != key, -shared[one], -one.question_id))
    return [one.question_id for one in best if shared[one] or one.question_key == key][:CANDIDATES]


def _load(ids: Collection[int]) -> list[Question]:
    questions = answered_by_people().filter(pk__in=ids).order_by("pk")
    return list(questions.select_related("task", "step", "answered_by").defer("tool_input", "evidence"))


def _described(question: Question, profile: Profile, one: _Candidate) -> EarlierAnswer:
    """Say what differs, and count the answers to this very question: the latest one is shown."""
    same = same_questions(question.task.project_id, one.key).exclude(pk=question.pk)
    answers = list(same.values_list("answered_at", "pk")[:MOST_TIMES])
    latest = max(answers)[1] if answers else one.question.pk
    if latest != one.question.pk:
        one = replace(one, question=_load([latest])[0])
    return EarlierAnswer(
        one.question,
        one.score,
        same=one.score == 1.0,
        differences=tuple(_differences(question, profile, one)),
        times=max(1, len(answers)),
        taken=one.question.taken_by.count(),
        answers=answers_for(question, one.question),
    )


def answers_for(question: Question, earlier: Question) -> dict[str, str]:
    """Return the earlier answers by the items of this question; chosen options have this question's labels.

    Items are matched by their question, else by their place; an item without a counterpart is left out.
    """
    by_place = len(question.items) == len(earlier.items)
    found = {}
    for place, item in enumerate(question.items):
        asked = str(item["question"])
        theirs = str(earlier.items[place]["question"]) if by_place else asked
        answer = earlier.answers.get(asked, earlier.answers.get(theirs, ""))
        if answer:
            found[asked] = in_own_labels(item, answer)
    return found


def in_own_labels(item: Mapping[str, Any], answer: str) -> str:
    """Return the answer with the labels of this item's options."""
    own = [str(option.get("label", "")) for option in item.get("options") or []]
    labels = {normalised_label(label): label for label in own}
    parts = answer.split(", ") if item.get("multiSelect") else [answer]
    return ", ".join(labels.get(normalised_label(part), part) for part in parts)


def find_taken(question: Question, answers: Mapping[str, str], earlier_id: int | None) -> Question | None:
    """Return the earlier question if a person of the project has given it these very answers."""
    if earlier_id is None or earlier_id == question.pk:
        return None
    there = answered_by_people().filter(task__project=question.task.project_id)
    earlier = there.filter(pk=earlier_id).select_related("task").first()
    return earlier if earlier and answers_for(question, earlier) == dict(answers) else None


def _differences(question: Question, profile: Profile, one: _Candidate) -> list[str]:
    """Return what differs between this question and the earlier one, for people."""
    other = one.question
    found = (
        [] if one.score == 1.0 else [*_differing_texts(question, other), *_differing_options(question, other)]
    )
    their_paths = profile_of(other.items).paths
    if profile.paths != their_paths:
        found.append(f"other paths: {_named(sorted(their_paths))}" if their_paths else "no paths")
    if question.step.name != other.step.name:
        found.append(f"other step: {other.step.name}")
    if question.task.pipeline != other.task.pipeline:
        found.append(f"other pipeline: {other.task.pipeline}")
    return found


def _differing_texts(question: Question, other: Question) -> list[str]:
    mine, theirs = (
        [normalised_label(str(item["question"])) for item in one.items] for one in (question, other)
    )
    return ["other wording"] if mine != theirs else []


def _differing_options(question: Question, other: Question) -> list[str]:
    mine, theirs = _labels(question), _labels(other)
    if not mine and not theirs:
        return []
    found = []
    if new := [label for key, label in mine.items() if key not in theirs]:
        found.append(f"options that it did not have: {_named(new)}")
    if gone := [label for key, label in theirs.items() if key not in mine]:
        found.append(f"options that only it had: {_named(gone)}")
    several = [any(item.get("multiSelect") for item in one.items) for one in (question, other)]
    if several[0] != several[1]:
        found.append("several could be chosen" if several[1] else "only one could be chosen")
    return found


def _labels(question: Question) -> dict[str, str]:
    options = (option for item in question.items for option in item.get("options") or [])
    return {normalised_label(label): label for option in options if (label := str(option.get("label", "")))}


def _named(shown: list[str]) -> str:
    more = len(shown) - _NAMED
    return visible(", ".join(shown[:_NAMED])) + (f" and {more} more" if more > 0 else "")
