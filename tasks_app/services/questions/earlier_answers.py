"""“Asked before”: earlier answers to similar questions, and their index.

In the index, each item of a question has an entry of its own, with the words of its answer. The index is
filled when a question is answered, so it holds neither open questions nor approvals. Words are stored as
digests with the project's id: hostile text is no query, and words of other projects are not read.

Each item of a question is compared alone, with what was asked and answered. Candidates are the newest answers
of the project and those that full text finds. Their words are compared in Python, so the
order is the same on both databases, and the work is bounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

from django.db import connection, connections
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from tasks_app.core.asked_items import in_own_labels
from tasks_app.core.named_paths import paths_named_in
from tasks_app.core.similar_questions import (
    Likeness,
    own_label,
    paths_in,
    question_digest,
    same_text,
    texts_of,
    words_of,
)
from tasks_app.core.text import visible
from tasks_app.models import IndexedAnswer, Question, QuestionKind, QuestionState

#: The letter before each digest, another one for each change of what is compared. It also keeps full text
#: from reading numbers such as 1e5.
_RULES = "x"
#: The newest answers, which are all compared, and in which it is counted how frequent words are.
SAMPLE = 600
#: Words of a question that full text looks for, the rarest ones, by two of them.
_WANTED_WORDS = 12
#: Answers of the sample that may have both words of a pair. Otherwise the pair tells nothing, and in a large
#: project it would be read thousands of times.
_MOST_WITH_PAIR = SAMPLE // 50
#: Answers that full text may find, the newest ones.
FOUND = 200
#: Rows that PostgreSQL sorts: it cannot read them in order.
_SORTED = 5_000


def question_key(question: Question) -> str:
    """Return a digest that is equal for questions that are the same; see `question_digest`."""
    return question_digest(question.items)


def index_answer(question: Question) -> None:
    """Put a clarification that a person answered into the index, in the transaction of the answer."""
    by_person = question.state == QuestionState.ANSWERED and question.answered_by_id is not None
    if question.kind == QuestionKind.CLARIFICATION and by_person:
        IndexedAnswer.objects.bulk_create(
            index_rows(question.task.project_id, question),
            update_conflicts=True,
            unique_fields=["question", "place"],
            update_fields=["project", "question_key", "words"],
        )


def forget_answer(question: Question) -> None:
    """Take an answer out of the index that was taken back."""
    IndexedAnswer.objects.filter(question=question).delete()


def index_rows(project_id: int, question: Question) -> list[IndexedAnswer]:
    """Return the rows of an answered question, not saved, one for each item."""
    rows = []
    for place, item in enumerate(question.items):
        answer = question.answers.get(str(item["question"]), "")
        words = sorted(indexed_words(project_id, texts_of(item, f"{answer} {question.notes}")))
        row = IndexedAnswer(question=question, place=place, project_id=project_id, words=" ".join(words))
        row.question_key = question_digest([item])
        rows.append(row)
    return rows


def renew_index(using: str, **kwargs: Any) -> None:
    """Receiver of Django's signal `post_migrate`: index anew what a version with other rules has indexed."""
    if IndexedAnswer._meta.db_table not in connections[using].introspection.table_names():
        return  # only other apps were migrated
    stale = IndexedAnswer.objects.using(using).exclude(words__startswith=_RULES).exclude(words="")
    while batch := list(stale.select_related("question")[:500]):
        for row in batch:
            words = {one.place: one.words for one in index_rows(row.project_id, row.question)}
            row.words = words.get(row.place, "")
        IndexedAnswer.objects.using(using).bulk_update(batch, ["words"])


def indexed_words(project_id: int, texts: Sequence[str]) -> list[str]:
    """Return the digests of the words of texts, in order."""
    named = (f"{project_id}:{word}".encode() for word in words_of(texts))
    return [_RULES + hashlib.blake2b(word, digest_size=4).hexdigest() for word in named]


def same_answers(project_id: int, key: str) -> QuerySet[IndexedAnswer]:
    """Return the answers of people of the project to items with this key, the newest question first."""
    answered = Q(question__state=QuestionState.ANSWERED, question__kind=QuestionKind.CLARIFICATION)
    same = IndexedAnswer.objects.filter(answered, project=project_id, question_key=key)
    return same.exclude(question__answered_by=None).order_by("-question_id")


def answered_by_people() -> QuerySet[Question]:
    """Return the clarifications that a named person answered."""
    answered = Question.objects.answered().filter(kind=QuestionKind.CLARIFICATION)
    return answered.exclude(answered_by=None)


class Entry(NamedTuple):
    """A row of the index."""

    question_id: int
    place: int
    question_key: str
    words: frozenset[str]


def newest_answers(question: Question) -> list[Entry]:
    """Return the project's newest answers."""
    rows = IndexedAnswer.objects.filter(project=question.task.project_id).exclude(question=question.pk)
    return _entries(rows.order_by("-question_id")[:SAMPLE])


def same_entry(question: Question, key: str) -> list[Entry]:
    """Return the newest answer to an item with this key, if there is one."""
    rows = IndexedAnswer.objects.filter(project=question.task.project_id, question_key=key)
    return _entries(rows.exclude(question=question.pk).order_by("-question_id")[:1])


def find_by_full_text(question: Question, words: Sequence[str], sample: Sequence[Entry]) -> list[Entry]:
    """Return answers with two of these words, rare ones, if the newest ones are not all.

    How rare words are is counted in the sample, the same on both databases.
    """
    if len(sample) < SAMPLE:
        return []
    pairs = _rare_pairs(words, [one.words for one in sample])
    if not pairs:
        return []
    rows = IndexedAnswer.objects.filter(pk__in=_matching(pairs)).exclude(question=question.pk)
    return _entries(rows.order_by("-question_id")[:FOUND])


def _entries(rows: QuerySet[IndexedAnswer]) -> list[Entry]:
    columns = rows.values_list("question_id", "place", "question_key", "words")
    return [Entry(pk, place, key, frozenset(words.split())) for pk, place, key, words in columns]


def _rare_pairs(words: Sequence[str], sample: Sequence[frozenset[str]]) -> list[tuple[str, str]]:
    having = {word: {place for place, one in enumerate(sample) if word in one} for word in words}
    wanted = sorted(words, key=lambda word: len(having[word]))[:_WANTED_WORDS]
    pairs = combinations(wanted, 2)
    return [(one, other) for one, other in pairs if len(having[one] & having[other]) <= _MOST_WITH_PAIR]


def _matching(pairs: list[tuple[str, str]]) -> RawSQL:
    """Return the ids of index rows with both words of a pair."""
    if connection.vendor == "sqlite":
        sql = "SELECT rowid FROM search_answers WHERE search_answers MATCH %s ORDER BY rowid DESC LIMIT %s"
        query = " OR ".join(f"({one} AND {other})" for one, other in pairs)
    else:
        sql = (
            "SELECT id FROM tasks_app_indexedanswer WHERE to_tsvector('pg_catalog.simple'::regconfig, words) "
            "@@ to_tsquery('pg_catalog.simple', %s) LIMIT %s"
        )
        query = " | ".join(f"({one} & {other})" for one, other in pairs)
    return RawSQL(sql, [query, _SORTED])  # noqa: S611 - the parameters are digests


Item = Mapping[str, Any]

#: Items below this score are not shown. `tests/quality/README.md` says how good that is.
THRESHOLD = 0.25
#: Items whose score is below this share of the nearest one's are not shown either.
SHARE_OF_NEAREST = 0.7
#: Earlier answers that are shown for an item.
_SHOWN = 3
#: The nearest items whose texts are read: the person who answered may be deleted.
CANDIDATES = 10
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
    #: Whether it is the same item (`question_digest`). Only then may its answer be filled in.
    same: bool
    #: What differs, for people.
    differences: tuple[str, ...] = ()
    #: How often this very item was answered, up to `MOST_TIMES`.
    times: int = 1
    #: How often this answer was used for another question.
    taken: int = 0
    #: The answer by the item of the new question, with its labels.
    answers: Mapping[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The question that was asked."""
        return str(self.item["question"])

    @property
    def text(self) -> str:
        """The answer in its own words, with its notes."""
        answer = self.question.answers.get(self.headline, "")
        if self.question.notes:
            answer += f"\n\n{self.question.notes_label}: {self.question.notes}"
        return answer

    def notes_for(self, question: Question) -> str:
        """Return its notes for another card; "" if that asks other questions, too, or not all of them.

        They would count for all questions there, and may be about one that is not.
        """
        cards = [{str(item["question"]) for item in one.items} for one in (self.question, question)]
        return self.question.notes if cards[0] == cards[1] else ""


def find_similar_answers(question: Question) -> list[EarlierAnswer]:
    """Return the earlier answers that are most similar to each item, the nearest first, item by item.

    Only answers that people of the same project gave to clarifications. Of items that are the same, the
    latest answer counts. A question of the same task that is only similar is left out: its agent knows the
    answer and asks all the same.
    """
    if not question.takes_answer or question.is_about_cost:
        return []
    recent = newest_answers(question)
    likeness = Likeness([one.words for one in recent])
    return [
        _earlier_answer(question, item, one)
        for item in question.items
        for one in _nearest_to(question, item, recent, likeness)[:_SHOWN]
    ]


@dataclass(frozen=True)
class _Candidate:
    question: Question
    item: Item
    key: str
    score: float


def _nearest_to(question: Question, item: Item, recent: list[Entry], likeness: Likeness) -> list[_Candidate]:
    """Return the similar items, the nearest first, one of each key."""
    key = question_digest([item])
    words = indexed_words(question.task.project_id, texts_of(item))
    entries: dict[str, Entry] = {}
    for one in (*same_entry(question, key), *recent, *find_by_full_text(question, words, recent)):
        entries.setdefault(one.question_key, one)  # the newest one: each list begins with it
    scores = likeness.of_each(words, [one.words for one in entries.values()])
    scored = [
        (1.0 if one.question_key == key else min(0.99, score), one.question_id, one.place, one.question_key)
        for one, score in zip(entries.values(), scores, strict=True)
    ]
    least = lowest_shown(one[0] for one in scored)
    near = sorted((one for one in scored if one[0] >= least), reverse=True)[:CANDIDATES]
    texts = _load([(pk, place) for _, pk, place, _ in near])
    found = [
        _Candidate(*texts[pk, place], its_key, score)
        for score, pk, place, its_key in near
        if (pk, place) in texts
    ]
    return [one for one in found if one.score == 1.0 or one.question.task_id != question.task_id]


def lowest_shown(scores: Iterable[float]) -> float:
    """Return the score from which items are shown: beside a near one, those far behind it are noise."""
    return max(THRESHOLD, SHARE_OF_NEAREST * max(scores, default=0.0))


def _load(places: Collection[tuple[int, int]]) -> dict[tuple[int, int], tuple[Question, Item]]:
    rows = answered_by_people().filter(pk__in={pk for pk, _ in places})
    rows = rows.select_related("task", "step", "answered_by").defer("tool_input", "evidence")
    questions = {one.pk: one for one in rows}
    return {
        (pk, place): (question, question.items[place])
        for pk, place in places
        if (question := questions.get(pk)) and place < len(question.items)
    }


def _earlier_answer(question: Question, item: Item, one: _Candidate) -> EarlierAnswer:
    """Say what differs, and count the answers to this very item: the latest one is shown."""
    same = same_answers(question.task.project_id, one.key).exclude(question=question.pk)
    answers = list(same.values_list("question__answered_at", "question_id", "place")[:MOST_TIMES])
    _, latest, place = max(answers, default=(None, one.question.pk, 0))
    if latest != one.question.pk:
        ((latest_question, its_item),) = _load([(latest, place)]).values()
        one = replace(one, question=latest_question, item=its_item)
    return EarlierAnswer(
        one.question,
        one.item,
        one.score,
        same=one.score == 1.0,
        differences=tuple(_differences(question, item, one)),
        times=max(1, len(answers)),
        taken=one.question.taken_by.count(),
        answers=_answer_for(item, one.question, one.item),
    )


def _answer_for(item: Item, earlier: Question, their_item: Item) -> dict[str, str]:
    """Return the earlier answer by this item, with its labels; nothing if there was none."""
    answer = earlier.answers.get(str(their_item["question"]))
    if not answer:
        return {}
    return {str(item["question"]): in_own_labels(item, answer)}


def answers_for(question: Question, earlier: Question) -> dict[str, str]:
    """Return the earlier answers to items that are the same, by the items of this question."""
    theirs = {question_digest([item]): item for item in earlier.items}
    found: dict[str, str] = {}
    for item in question.items:
        if same := theirs.get(question_digest([item])):
            found |= _answer_for(item, earlier, same)
    return found


def find_reused_answer(
    question: Question, answers: Mapping[str, str], earlier_id: int | None
) -> Question | None:
    """Return the earlier question if a person of the project has given one of these answers to it."""
    if earlier_id is None or earlier_id == question.pk:
        return None
    there = answered_by_people().filter(task__project=question.task.project_id)
    earlier = there.filter(pk=earlier_id).select_related("task").first()
    if earlier and answers.items() & answers_for(question, earlier).items():
        return earlier
    return None


def _differences(question: Question, item: Item, one: _Candidate) -> list[str]:
    """Return what differs between this item and the earlier one, for people."""
    other = one.question
    found = []
    if one.score < 1.0:
        found = _differing_options(item, one.item)
    if paths_in(texts_of(item)) != paths_in(texts_of(one.item)):
        theirs = sorted(paths_named_in(texts_of(one.item)))  # as they are written
        found.append(f"other paths: {_named(theirs)}" if theirs else "no paths")
    if question.step.name != other.step.name:
        found.append(f"other step: {other.step.name}")
    if question.task.pipeline != other.task.pipeline:
        found.append(f"other pipeline: {other.task.pipeline}")
    return found


def _differing_options(item: Item, other: Item) -> list[str]:
    mine, theirs = _options_by_label(item), _options_by_label(other)
    found = []
    if new := [str(option["label"]) for key, option in mine.items() if key not in theirs]:
        found.append(f"options that it did not have: {_named(new)}")
    if gone := [str(option["label"]) for key, option in theirs.items() if key not in mine]:
        found.append(f"options that only it had: {_named(gone)}")
    both = [key for key in mine if key in theirs]
    for name, said in (("description", "described otherwise"), ("preview", "with another preview")):
        texts = {key: [same_text(str(one[key].get(name) or "")) for one in (mine, theirs)] for key in both}
        if changed := [key for key, (now, then) in texts.items() if now != then]:
            found.append(f"{said}: {_named(changed)}")
    if bool(item.get("multiSelect")) != bool(other.get("multiSelect")):
        found.append("several could be chosen" if other.get("multiSelect") else "only one could be chosen")
    return found


def _options_by_label(item: Item) -> dict[str, Item]:
    return {own_label(str(one["label"])): one for one in item.get("options") or [] if one.get("label")}


def _named(shown: list[str]) -> str:
    named = visible(", ".join(shown[:_NAMED]))
    if len(shown) > _NAMED:
        named += f" and {len(shown) - _NAMED} more"
    return named
