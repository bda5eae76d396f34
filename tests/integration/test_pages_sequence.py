"""The page of a sequence, its buttons, and making one from a folder (P10, H4, W2, W3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.module_loading import import_string

from tasks_app.core.phases import Phase
from tasks_app.models import Event, EventKind, Project, Sequence, Task, User
from tasks_app.services.projects.projects import add_project
from tasks_app.services.sequences import create_sequence
from tests.browser import signed_in
from tests.factories import QuestionFactory, RunFactory, SequenceFactory, TaskFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.markup import tidy
from tests.people import acting

pytestmark = pytest.mark.django_db

FOLDER = "tasks/prices"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def admin() -> User:
    return UserFactory.create(is_superuser=True)


@pytest.fixture
def browser(admin: User) -> Client:
    return signed_in(admin)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path / "data")
    repository = GitRepository.make(tmp_path / "shop", **{"README.md": "Shop\n"})
    (repository.path / FOLDER).mkdir(parents=True)
    repository.commit(**{f"{FOLDER}/{name}.md": f"# Task {name}\n" for name in ("01-a", "02-b", "_c")})
    return add_project("shop", str(repository.path))


@pytest.fixture
def sequence(project: Project, admin: User) -> Sequence:
    return create_sequence(project, FOLDER, by=acting(admin))


def page_of(sequence: Sequence) -> str:
    return reverse("sequence", args=[sequence.pk])


def test_it_shows_what_was_begun_and_what_is_to_come(browser: Client, sequence: Sequence) -> None:
    page = browser.get(page_of(sequence)).text
    assert "Task 01-a" in page
    assert "upcoming" in page and "02-b.md" in page and "_c" not in page
    assert "Nobody has started this sequence yet." in page


def test_start_cancel_and_resume_are_buttons(browser: Client, sequence: Sequence) -> None:
    for button, phase, offered in (
        ("start", Phase.PENDING, "sequence_cancel"),
        ("cancel", Phase.CANCELLED, "sequence_resume"),
        ("resume", Phase.PENDING, "sequence_cancel"),
    ):
        address = reverse(f"sequence_{button}", args=[sequence.pk])
        assert f'action="{address}"' in browser.get(page_of(sequence)).text
        page = browser.post(address, follow=True).text
        sequence.refresh_from_db()
        assert sequence.phase == phase
        assert f'action="{reverse(offered, args=[sequence.pk])}"' in page
    assert Task.objects.due().count() == 1


def test_a_button_that_comes_too_late_explains_itself(browser: Client, sequence: Sequence) -> None:
    Task.objects.update(phase=Phase.DONE)
    Sequence.objects.update(phase=Phase.DONE)
    for button in ("cancel", "resume"):
        page = browser.post(reverse(f"sequence_{button}", args=[sequence.pk]), follow=True)
        assert page.status_code == 200
        assert f"Sequence “{FOLDER}” is done and cannot become" in page.text


def test_a_task_that_waits_shows_its_question(browser: Client) -> None:
    sequence = SequenceFactory.create(phase=Phase.WAITING_FOR_INPUT)
    task = TaskFactory.create(
        project=sequence.project, sequence=sequence, file="01.md", phase=Phase.WAITING_FOR_INPUT
    )
    QuestionFactory.create(task=task)
    page = tidy(browser.get(page_of(sequence)).text)
    assert "How should half cents be rounded?" in page
    assert "needs your answer" in page and f'current: <a href="{reverse("task", args=[task.pk])}"' in page


def test_tokens_dollars_and_pauses_are_rolled_up(browser: Client) -> None:
    sequence = SequenceFactory.create(phase=Phase.RUNNING, started_at=timezone.now())
    for n in (1, 2):
        task = TaskFactory.create(
            project=sequence.project, sequence=sequence, file=f"{n}.md", paused_seconds=90, phase=Phase.DONE,
            started_at=timezone.now(),
        )  # fmt: skip
        RunFactory.create(
            step=task.steps.first(), model=f"model-{n}", input_tokens=400, cache_read_tokens=600, cost_usd=1
        )
    page = tidy(browser.get(page_of(sequence)).text)
    assert '<span title="2000">2k</span> in' in page and "$2.00" in page
    assert "model-1: 1k in, 0 out, $1.00" in page
    rows = tidy(browser.get(f"{page_of(sequence)}?part=tasks").text)
    assert rows.count("1k in, 0 out") == 2 and rows.count("1 min 30 s waiting") == 2
    assert '<span class="machine">1.md</span>' in rows and '<span class="machine">2.md</span>' in rows


def test_a_failure_is_shown_plainly_and_nothing_of_it_is_taken_for_html(browser: Client) -> None:
    sequence = SequenceFactory.create(phase=Phase.FAILED, folder=HOSTILE, failure=f"{HOSTILE}/2.md:1: no")
    TaskFactory.create(project=sequence.project, sequence=sequence, file=f"{HOSTILE}.md", title=HOSTILE)
    for address in (page_of(sequence), "/tasks/"):
        page = browser.get(address).text
        assert "<script>alert" not in page and "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("part", "shown"),
    [("header", "Nobody has started"), ("tasks", "Task 01-a"), ("details", "Created")],
)
def test_a_part_is_fetched_again_without_the_page_around_it(
    browser: Client, sequence: Sequence, part: str, shown: str
) -> None:
    """W3: each by itself, so that nothing that is written in a card is lost."""
    text = browser.get(f"{page_of(sequence)}?part={part}", headers={"HX-Request": "true"}).text
    assert shown in text and "<html" not in text and "<form class" not in text


def test_a_question_of_any_task_is_answered_on_the_page(browser: Client) -> None:
    """W2, H5: with the card that the task's page has; one that the page knows does not come again."""
    sequence = SequenceFactory.create(phase=Phase.WAITING_FOR_INPUT)
    task = TaskFactory.create(
        project=sequence.project, sequence=sequence, file="01.md", phase=Phase.WAITING_FOR_INPUT
    )
    question = QuestionFactory.create(task=task)
    QuestionFactory.create()
    card = f'id="question-{question.pk}"'
    page = browser.get(page_of(sequence)).text
    assert page.count('<article class="card') == 1 and card in page
    arrived = f"/sequences/{sequence.pk}/?now#question-{question.pk}"
    assert arrived in browser.get(page_of(sequence), {"part": "header"}).text
    assert arrived not in browser.get(page_of(sequence), {"part": "header", "known": str(question.pk)}).text


def test_a_done_sequence_opens_with_its_result(browser: Client) -> None:
    """V1: what its last agent said, the checks of all tasks and all decisions."""
    sequence = SequenceFactory.create(phase=Phase.DONE)
    for number in (1, 2):
        task = TaskFactory.create(
            project=sequence.project, sequence=sequence, file=f"{number}.md", phase=Phase.DONE
        )
        check = {"check": f"make check-{number}", "passed": True}
        run = RunFactory.create(step=task.steps.first(), outcome="finished", checks=[check])
        say = {
            "kind": EventKind.RESULT,
            "at": timezone.now(),
            "payload": {"text": f"Closing words {number}."},
        }
        Event.objects.create(run=run, seq=0, **say)
    page = browser.get(page_of(sequence)).text
    folded, shown = (page[: page.index(f"Closing words {number}.")] for number in (1, 2))
    assert folded.count("<details") == folded.count("</details>") + 1
    assert shown.count("<details") == shown.count("</details>")
    assert "make check-1" in page and "make check-2" in page
    Sequence.objects.update(phase=Phase.RUNNING)
    assert "Closing words" not in browser.get(page_of(sequence)).text


def test_a_cancelled_sequence_says_by_whom(browser: Client, admin: User, sequence: Sequence) -> None:
    browser.post(reverse("sequence_start", args=[sequence.pk]))
    browser.post(reverse("sequence_cancel", args=[sequence.pk]))
    assert f"Cancelled by {admin.shown_name}, <time" in tidy(browser.get(page_of(sequence)).text)


def test_tasks_name_their_sequence(browser: Client, sequence: Sequence) -> None:
    task = sequence.tasks.get()
    link = re.compile(rf'<a href="{page_of(sequence)}"[^>]*>{FOLDER}</a>')
    for address in ("/tasks/", reverse("task", args=[task.pk])):
        assert link.search(browser.get(address).text)


def test_a_sequence_that_cannot_continue_is_on_the_dashboard(browser: Client, sequence: Sequence) -> None:
    """Its tasks are all done, so no row of theirs tells."""
    sequence.tasks.update(phase=Phase.DONE)
    Sequence.objects.update(
        phase=Phase.FAILED, failure="02-b.md:1: the task has no text", ended_at=timezone.now()
    )
    page = browser.get("/tasks/").text
    assert "Sequences that cannot continue" in page and "02-b.md:1: the task has no text" in page
    sequence.tasks.update(phase=Phase.FAILED)
    assert "Sequences that cannot continue" not in browser.get("/tasks/").text
    outsider = signed_in(UserFactory.create())
    sequence.tasks.update(phase=Phase.DONE)
    assert "02-b.md" not in outsider.get("/tasks/").text


def test_a_part_costs_only_what_it_shows(
    browser: Client, sequence: Sequence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of a task fetches every part, in every browser that shows it."""
    called: list[str] = []

    def counted(module: str, name: str) -> None:
        real = import_string(f"{module}.{name}")

        def noted(*given: object) -> object:
            called.append(name)
            return real(*given)

        monkeypatch.setattr(f"{module}.{name}", noted)

    for name in ("upcoming_files", "of_rows", "result_of", "publishing_details", "cards_of"):
        counted("tasks_app.web.sequences", name)

    def cost(part: str) -> tuple[list[str], int]:
        called.clear()
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(f"{page_of(sequence)}?part={part}").status_code == 200
        return sorted(called), len(captured)

    everything, most = cost("")
    assert everything == ["cards_of", "of_rows", "publishing_details", "result_of", "upcoming_files"]
    assert cost("header")[0] == [], "nobody has started it, so it says nothing of what is to come"
    assert cost("details")[0] == ["publishing_details"]
    assert cost("tasks")[0] == ["of_rows", "upcoming_files"]
    assert cost("result")[0] == ["publishing_details", "result_of"]
    assert max(cost(part)[1] for part in ("header", "result", "details", "tasks")) < most


def test_a_part_of_a_task_costs_only_what_it_shows(browser: Client, sequence: Sequence) -> None:
    task = sequence.tasks.get()

    def queries(name: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(reverse(name, args=[task.pk])).status_code == 200
        return len(captured)

    plan, header, timeline, page = map(queries, ("task_plan", "task_header", "task_timeline", "task"))
    assert max(plan, header, timeline) < page


def test_the_cost_of_the_page_does_not_grow_with_its_tasks(browser: Client, sequence: Sequence) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(page_of(sequence)).status_code == 200
        return len(captured)

    few = queries()
    for n in range(20):
        task = TaskFactory.create(
            project=sequence.project, sequence=sequence, file=f"{n}.md", phase=Phase.DONE
        )
        RunFactory.create(step=task.steps.first())
    assert queries() == few


class TestNew:
    @pytest.fixture
    def send(self, browser: Client, project: Project) -> Callable[..., object]:
        def send(**given: str) -> object:
            return browser.post(
                reverse("task_new"), {"project": str(project.pk), "kind": "folder", "text": "", **given}
            )

        return send

    def test_a_folder_becomes_a_sequence_and_is_started_with_one_click(
        self, send: Callable[..., object]
    ) -> None:
        answer = send(folder=FOLDER, threshold="4", start="1")
        sequence = Sequence.objects.get()
        assert answer["Location"] == page_of(sequence)  # type: ignore[index]
        assert sequence.threshold == 4
        assert Task.objects.due().count() == 1

    def test_it_can_be_created_only(self, send: Callable[..., object]) -> None:
        send(folder=f"{FOLDER}/", create="1")
        assert Sequence.objects.get().folder == FOLDER
        assert not Task.objects.due().exists()

    @pytest.mark.parametrize(
        ("folder", "told"),
        [
            ("", "Enter the path of a folder"),
            ("nowhere", "nowhere: the newest commit of main has no such folder"),
            ("../etc", "is not a folder within the repository"),
        ],
    )
    def test_a_bad_folder_is_refused_with_the_reason_and_keeps_what_was_typed(
        self, send: Callable[..., object], folder: str, told: str
    ) -> None:
        """R5."""
        answer = send(folder=folder, start="1")
        assert answer.status_code == 400  # type: ignore[attr-defined]
        assert told in answer.text  # type: ignore[attr-defined]
        assert f'value="{folder}"' in answer.text or not folder  # type: ignore[attr-defined]
        assert not Sequence.objects.exists()

    def test_a_form_without_the_choice_makes_a_task(self, send: Callable[..., object]) -> None:
        send(kind="", text="# Do it\n", create="1")
        assert Task.objects.get().title == "Do it"
