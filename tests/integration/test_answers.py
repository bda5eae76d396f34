"""Answering: the first one wins, once; every refusal changes nothing (H5, R1)."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from django.db import connection
from huey.contrib.djhuey import HUEY

from tasks_app.core.errors import AnswerEmpty, AnswerTooLong, BadInput, CatHerderError, NotAllowed, NotOpen
from tasks_app.core.phases import Phase
from tasks_app.models import (
    Channel,
    Event,
    Membership,
    Project,
    Question,
    QuestionState,
    Role,
    Task,
    Transition,
    User,
)
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.services.questions.question_outcomes import why_not_open
from tasks_app.services.tasks import cancel_task
from tasks_app.services.workers import worker_notifier
from tests.factories import FILE_NAME, ROUNDING, QuestionFactory
from tests.fake_script import Turn, ask, say
from tests.installation import Installation
from tests.people import acting
from tests.runner import Runner, results

SUBMITTERS = 20


def in_parallel(count: int, action: Any) -> list[Any]:
    """What each of `count` threads, with connections of their own, got or was refused with."""
    together = threading.Barrier(count)
    outcomes: list[Any] = [None] * count

    def go(number: int) -> None:
        try:
            together.wait()
            outcomes[number] = action(number)
        except CatHerderError as error:
            outcomes[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=go, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    tasks: list[int] = []
    monkeypatch.setattr(worker_notifier, "_notify", lambda task_id, seconds: tasks.append(task_id))
    return tasks


def answer(question: Question, text: str, by: User, *, notes: str = "") -> Any:
    reply = Reply({item["question"]: text for item in question.items}, notes)
    return answer_question(question, reply, by=acting(by), via=Channel.WEB)


def member(project: Project, name: str, role: Role = Role.MEMBER) -> User:
    user = User.objects.create_user(name)
    Membership.objects.create(user=user, project=project, role=role)
    return user


def state() -> Any:
    return (
        list(Question.objects.values().order_by("pk")),
        list(Task.objects.values()),
        Event.objects.count(),
        Transition.objects.count(),
    )


def test_of_twenty_submits_at_once_one_wins_and_the_agent_gets_it_once(
    runner: Runner, notified: list[int]
) -> None:
    task = runner.advance(runner.task([Turn(calls=(ask("Red?"),)), say("Good.")]))
    notified.clear()
    pk = task.questions.get().pk
    people = [member(task.project, f"person{n}") for n in range(SUBMITTERS)]
    outcomes = in_parallel(
        SUBMITTERS, lambda n: answer(Question.objects.get(pk=pk), f"Answer {n}", people[n])
    )
    kinds = Counter(type(outcome).__name__ for outcome in outcomes)
    assert kinds == {"Answered": 1, "NotOpen": SUBMITTERS - 1}
    question = Question.objects.get()
    winner = next(n for n, outcome in enumerate(outcomes) if type(outcome).__name__ == "Answered")
    assert question.answers == {"Red?": f"Answer {winner}"}
    assert question.answered_by == people[winner]
    assert all(f"Answered by person{winner}" in str(o) for o in outcomes if isinstance(o, NotOpen))
    assert notified == [task.pk]
    assert runner.advance(task).phase == Phase.DONE
    (told,) = results(task)
    assert told.count(f"Answer {winner}") == 1
    assert Event.objects.filter(kind="answer").count() == 1


def test_of_submits_from_four_processes_one_wins(installation: Installation) -> None:
    made = installation.python(
        "from tests.factories import QuestionFactory\nsys.stdout.write(str(QuestionFactory.create().pk))"
    )
    code = f"""
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.core.errors import NotOpen
from tasks_app.models import Channel, Question, User
from tasks_app.permissions import Principal
principal = Principal.unrestricted(User.objects.get(username="ann"))
question = Question.objects.get(pk={made})
sys.stdin.read(1)
for number in range(5):
    text = sys.argv[1] + str(number)
    try:
        answer_question(question, Reply.to(question, text), by=principal, via=Channel.API)
    except NotOpen:
        print("late")
    else:
        print("won", text)
"""
    processes = [installation.fork(code, name) for name in "abcd"]
    for process in processes:
        process.stdin.write("!")
        process.stdin.flush()
    said = [line for process in processes for line in process.communicate().splitlines()]
    won = [line for line in said if line.startswith("won")]
    assert (len(won), said.count("late")) == (1, 19)
    assert list(installation.answers(int(made)).values()) == [won[0].split()[1]]


def test_the_same_answer_again_by_the_same_person_is_no_error(runner: Runner) -> None:
    question = QuestionFactory.create()
    answer(question, "Half up", runner.user, notes="please")
    before = state()
    again = answer(Question.objects.get(), "Half up", runner.user, notes="please")
    assert again.repeated
    assert state() == before


@pytest.mark.parametrize(("text", "notes"), [("Half up", "other"), ("Half to even", "")])
def test_another_answer_by_the_same_person_is_too_late(runner: Runner, text: str, notes: str) -> None:
    question = QuestionFactory.create()
    answer(question, "Half up", runner.user)
    before = state()
    with pytest.raises(NotOpen, match=r"Answered by ann at .*: Half up"):
        answer(Question.objects.get(), text, runner.user, notes=notes)
    assert state() == before


def test_the_same_answer_by_another_person_is_too_late(runner: Runner) -> None:
    question = QuestionFactory.create()
    other = member(question.task.project, "bob")
    answer(question, "Half up", runner.user)
    with pytest.raises(NotOpen, match="Answered by ann"):
        answer(Question.objects.get(), "Half up", other)


@pytest.mark.parametrize("attempt", range(3))
def test_two_last_answers_at_once_move_the_task_once(
    runner: Runner, notified: list[int], attempt: int
) -> None:
    task = runner.advance(runner.task([Turn(calls=(ask("Colour?"), ask("Size?"))), say("Good.")]))
    notified.clear()
    questions = list(task.questions.all())
    outcomes = in_parallel(2, lambda n: answer(Question.objects.get(pk=questions[n].pk), "Yes", runner.user))
    assert [type(outcome).__name__ for outcome in outcomes] == ["Answered", "Answered"]
    assert task.transitions.filter(step=None, source=Phase.WAITING_FOR_INPUT).count() == 1
    assert notified == [task.pk]
    assert runner.advance(task).phase == Phase.DONE


def test_an_answer_and_a_cancel_at_once_end_in_one_of_two_true_states(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(ask("Colour?"),)), say("Good.")]))
    question = task.questions.get()
    outcomes = in_parallel(
        2,
        lambda n: (
            cancel_task(Task.objects.get(pk=task.pk), by=acting(runner.user))
            if n
            else answer(Question.objects.get(pk=question.pk), "Yes", runner.user)
        ),
    )
    task.refresh_from_db()
    question.refresh_from_db()
    assert task.phase == Phase.CANCELLED
    assert question.state == (
        QuestionState.WITHDRAWN if isinstance(outcomes[0], NotOpen) else QuestionState.ANSWERED
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", AnswerEmpty),
        (" \r\n\t ", AnswerEmpty),
        ("a\0b", BadInput),
        ("x" * 200_001, AnswerTooLong),
    ],
)
def test_what_cannot_be_taken_changes_nothing(runner: Runner, text: str, error: type[Exception]) -> None:
    """R5."""
    question = QuestionFactory.create()
    before = state()
    with pytest.raises(error):
        answer(question, text, runner.user)
    assert state() == before


def test_one_of_several_left_out_is_refused_by_its_name(runner: Runner) -> None:
    question = QuestionFactory.create(items=[ROUNDING, FILE_NAME])
    before = state()
    with pytest.raises(AnswerEmpty, match="What should the file be called"):
        answer_question(
            question, Reply({ROUNDING["question"]: "Half up"}), by=acting(runner.user), via=Channel.WEB
        )
    assert state() == before


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("one\r\ntwo\nthree", "one\ntwo\nthree"),
        ("half \ud83d a pair", "half \ufffd a pair"),
        ("  kept as typed  ", "  kept as typed  "),
        ("@/etc/passwd", "@/etc/passwd"),
        ("x" * 100_000, "x" * 100_000),
        ("☃ 🐈‍⬛", "☃ 🐈‍⬛"),
    ],
)
def test_an_answer_is_kept_as_it_was_typed(runner: Runner, typed: str, kept: str) -> None:
    question = QuestionFactory.create()
    answer(question, typed, runner.user)
    assert list(Question.objects.get().answers.values()) == [kept]


def test_who_may_only_look_may_not_answer(runner: Runner) -> None:
    """W1: viewer, outsider, and a member of another project."""
    question = QuestionFactory.create()
    viewer = member(question.task.project, "vic", Role.VIEWER)
    outsider = User.objects.create_user("out")
    other = QuestionFactory.create()
    neighbour = member(other.task.project, "nat")
    before = state()
    for person in (viewer, outsider, neighbour):
        with pytest.raises(NotAllowed):
            answer(question, "Half up", person)
    assert state() == before


def test_a_withdrawn_question_takes_no_answer(runner: Runner) -> None:
    question = QuestionFactory.create(state=QuestionState.WITHDRAWN)
    before = state()
    with pytest.raises(NotOpen, match="was withdrawn"):
        answer(question, "Half up", runner.user)
    assert state() == before


def test_a_long_answer_is_named_by_its_beginning(runner: Runner) -> None:
    question = QuestionFactory.create()
    answer(question, "long " * 1000, runner.user)
    assert len(why_not_open(question)) < 700


def test_a_queue_that_is_down_loses_no_answer(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ConnectionError("no queue")

    monkeypatch.setattr(HUEY.storage, "enqueue", broken)
    question = QuestionFactory.create()
    answer(question, "Half up", runner.user)
    task = Task.objects.get()
    assert (Question.objects.get().state, task.phase) == (QuestionState.ANSWERED, Phase.PENDING)


@pytest.mark.parametrize(
    ("several", "typed", "kept"),
    [
        (False, "Guests, at first", "Guests, at first (Recommended)"),
        (False, "guests, at first", "guests, at first"),
        (False, "Not Staff", "Not Staff"),
        (True, "Staff, Guests, at first", "Staff, Guests, at first (Recommended)"),
        (True, "Staff, others", "Staff, others"),
        (True, "Staff, " * 20_000, "Staff, " * 20_000),
    ],
)
def test_an_option_is_that_option_without_its_mark_too(
    runner: Runner, several: bool, typed: str, kept: str
) -> None:
    """D8, through each channel."""
    options = [{"label": "Guests, at first (Recommended)"}, {"label": "Staff"}]
    item = {"question": "For whom?", "header": "", "options": options, "multiSelect": several}
    question = QuestionFactory.create(items=[item])
    answer_question(question, Reply.to(question, typed), by=acting(runner.user), via=Channel.API)
    question.refresh_from_db()
    assert question.answers == {"For whom?": kept}
