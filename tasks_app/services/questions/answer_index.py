"""The index of answered questions: writing it, and finding candidates by full text on both databases.

Each item of a question has an entry of its own. The index is filled when a question is answered, so it holds
neither open questions nor approvals. Words are stored as digests with the project's id: hostile text is no
query, and words of other projects are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from tasks_app.core.similar_questions import Items, Profile, profile_of, question_digest
from tasks_app.models import IndexedAnswer, Question, QuestionKind, QuestionState

#: Words of a question that are indexed.
_INDEXED_WORDS = 24
#: Answers in which it is counted how frequent words are.
SAMPLE = 300
#: Words of a question that full text looks for, the rarest ones, by two of them.
_WANTED_WORDS = 8
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
        project = question.task.project_id
        IndexedAnswer.objects.bulk_create(
            [
                IndexedAnswer(question=question, place=place, **index_values(project, [item]))
                for place, item in enumerate(question.items)
            ],
            update_conflicts=True,
            unique_fields=["question", "place"],
            update_fields=["project", "question_key", "words"],
        )


def forget_answer(question: Question) -> None:
    """Take an answer out of the index that was taken back."""
    IndexedAnswer.objects.filter(question=question).delete()


def index_values(project_id: int, items: Items) -> dict[str, object]:
    """Return the columns of an `IndexedAnswer` to a question with these items, mostly one."""
    words = " ".join(sorted(indexed_words(project_id, profile_of(items))))
    return {"project_id": project_id, "question_key": question_digest(items), "words": words}


def indexed_words(project_id: int, profile: Profile) -> list[str]:
    """Return the digests of a question's most telling words, in this order."""
    words = sorted(profile.words, key=lambda word: (-profile.words[word], -len(word), word))
    return [_digest(project_id, word) for word in words[:_INDEXED_WORDS]]


def _digest(project_id: int, word: str) -> str:
    # The letter in front keeps full text from reading numbers such as 1e5.
    return "w" + hashlib.blake2b(f"{project_id}:{word}".encode(), digest_size=6).hexdigest()


def same_answers(project_id: int, key: str) -> QuerySet[IndexedAnswer]:
    """Return the answers of people of the project to items with this key, the newest question first."""
    answered = Q(question__state=QuestionState.ANSWERED, question__kind=QuestionKind.CLARIFICATION)
    same = IndexedAnswer.objects.filter(answered, project=project_id, question_key=key)
    return same.exclude(question__answered_by=None).order_by("-question_id")


def answered_by_people() -> QuerySet[Question]:
    """Return the clarifications that a named person answered."""
    answered = Question.objects.answered().filter(kind=QuestionKind.CLARIFICATION)
    return answered.exclude(answered_by=None)


@dataclass(frozen=True)
class Entry:
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


def find_by_full_text(question: Question, words: Sequence[str], sample: Iterable[Entry]) -> list[Entry]:
    """Return answers with two of these words, rare ones.

    How rare words are is counted in the sample, the same on both databases.
    """
    pairs = _rare_pairs(words, [one.words for one in sample])
    if not pairs:
        return []
    rows = IndexedAnswer.objects.filter(pk__in=_matching(pairs)).exclude(question=question.pk)
    return _entries(rows.order_by("-question_id")[:FOUND])


def _entries(rows: QuerySet[IndexedAnswer]) -> list[Entry]:
    columns = rows.values_list("question_id", "place", "question_key", "words")
    return [Entry(pk, place, key, frozenset(words.split())) for pk, place, key, words in columns]


def _rare_pairs(words: Sequence[str], sample: list[frozenset[str]]) -> list[tuple[str, str]]:
    frequency = {word: sum(word in one for one in sample) for word in words}
    wanted = sorted(words, key=lambda word: (frequency[word], words.index(word)))[:_WANTED_WORDS]
    return [
        (one, other)
        for one, other in combinations(wanted, 2)
        if sum(one in words and other in words for words in sample) <= _MOST_WITH_PAIR
    ]


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
