"""A decision whose cited files change is asked about at the next fetch, and nothing hides that (D1, D6)."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from tasks_app.models import Channel, Decision, DecisionState, Project, Question, Task, paths
from tasks_app.services.decisions.answering import DecisionInput, Remember
from tasks_app.services.decisions.applying import find_match
from tasks_app.services.decisions.changes import make_decision, mark_reviewed
from tasks_app.services.decisions.citing import UNREAD, mark_stale
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.projects.projects import fetch
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.services.sequences import create_sequence, start_sequence
from tests.browser import signed_in
from tests.fake_agent import FakeAgent
from tests.fake_script import Turn, ask, say, write
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = "Shall src/a.py be changed? Compare ../a.py."


@pytest.fixture
def project(runner: Runner) -> Project:
    return runner.project(**{"src/a.py": "a = 1\n", "src/b.py": "b = 1\n"})


@pytest.fixture
def source(project: Project) -> GitRepository:
    return GitRepository(Path(project.source))


def asking(runner: Runner, project: Project) -> Question:
    """A question of a task that has set `a` to 2."""
    play = [
        Turn("I change it.", (write("src/a.py", "a = 2\n"),)),
        Turn("I ask.", (ask(ASKED),)),
        say("Done."),
    ]
    return runner.advance(runner.task(play, project=project)).questions.get()


def answered(runner: Runner, question: Question) -> Decision:
    given = DecisionInput(Remember("project", statement="Files may be changed."))
    reply = Reply({question.headline: "Yes"}, decision_input=given)
    answer_question(question, reply, by=acting(runner.user), via=Channel.WEB)
    return question.decisions.get()


def ruled(runner: Runner, project: Project, statement: str = "src/b.py has no loops.") -> Decision:
    return make_decision(project, DecisionContent(statement), by=acting(runner.user))


def review_of(decision: Decision) -> str:
    decision.refresh_from_db()
    assert decision.state == DecisionState.ACTIVE
    return decision.why_review


def kinds(decision: Decision) -> list[str]:
    return list(decision.events.order_by("pk").values_list("kind", flat=True))


def test_a_cited_file_that_changes_marks_the_decision_at_the_next_fetch(
    runner: Runner, project: Project, source: GitRepository
) -> None:
    decision, other = ruled(runner, project), ruled(runner, project, "src/a.py has no loops.")
    source.commit(**{"docs/x.md": "Nobody cites this.\n"})
    fetch(project)
    assert not review_of(decision)
    source.commit(**{"src/b.py": "b = 2\n"})
    fetch(project)
    assert review_of(decision) == "the code that it cites has changed: src/b.py"
    assert kinds(decision) == ["decided", "stale"] and kinds(other) == ["decided"]


def test_a_stale_decision_stays_in_force_and_its_page_asks(
    runner: Runner, project: Project, source: GitRepository
) -> None:
    decision = ruled(runner, project)
    source.commit(**{"src/b.py": "b = 2\n"})
    fetch(project)
    page = signed_in(runner.user).get(f"/projects/{project.pk}/decisions/{decision.number}/").text
    assert "The code that it cites has changed: src/b.py" in page and "Changed: show what" in page
    runner.advance(runner.task([say("Done.")], project=project))
    assert "src/b.py has no loops." in Task.objects.latest("pk").steps.get().runs.get().prompt
    mark_reviewed(Decision.objects.get(pk=decision.pk), by=acting(runner.user))
    fetch(project)
    assert not review_of(decision)


def test_the_task_that_asked_may_change_what_its_decision_cites(
    runner: Runner, project: Project, source: GitRepository
) -> None:
    """The citation follows, and the history says so."""
    decision = answered(runner, asking(runner, project))
    assert [one["path"] for one in decision.cites] == ["src/a.py"]
    source.commit(**{"src/a.py": "a = 2\n"})  # what the task made was published
    fetch(project)
    assert not review_of(decision)
    assert decision.cites[0]["blob"] == source.git("rev-parse", "HEAD:src/a.py")
    assert kinds(decision) == ["decided", "cited_anew"]
    assert decision.events.latest("pk").note == "src/a.py"
    source.commit(**{"src/a.py": "a = 3\n"})
    fetch(project)
    assert review_of(decision) == "the code that it cites has changed: src/a.py"


def test_an_earlier_result_of_the_task_that_asked_may_be_taken_over(
    runner: Runner, project: Project, source: GitRepository
) -> None:
    """Such as while the task continues after a review."""
    play = [
        Turn("I change it.", (write("src/a.py", "a = 2\n"),)),
        Turn("I ask.", (ask(ASKED),)),
        Turn("I change it again.", (write("src/a.py", "a = 3\n"),)),
        say("Done."),
    ]
    task = runner.advance(runner.task(play, project=project))
    decision = answered(runner, task.questions.get())
    runner.advance(task)
    source.commit(**{"src/a.py": "a = 2\n"})
    fetch(project)
    assert not review_of(decision) and kinds(decision) == ["decided", "cited_anew"]
    source.commit(**{"src/a.py": "a = 3\n"})
    fetch(project)
    assert not review_of(decision)
    source.commit(**{"src/a.py": "a = 4\n"})
    fetch(project)
    assert review_of(decision) == "the code that it cites has changed: src/a.py"


def test_a_task_of_a_sequence_may_cite_what_the_one_before_it_changed(
    runner: Runner, source: GitRepository, project: Project
) -> None:
    """Its branch is not published yet, so the project's branch still has what was there before."""
    source.commit(**{"tasks/1.md": "# First\n", "tasks/2.md": "# Second\n"})
    fetch(project)
    first = [Turn("I change it.", (write("src/a.py", "a = 2\n"),)), say("Done.")]
    second = [Turn("I ask.", (ask(ASKED),)), say("Done.")]
    runner.agent = FakeAgent(lambda prompt: second if "# Second" in prompt else first)
    start_sequence(
        create_sequence(project, "tasks", by=acting(runner.user), threshold=3), by=acting(runner.user)
    )
    while due := Task.objects.due().first():
        runner.advance(due)
    assert [one.failure for one in Task.objects.all()] == ["", ""]
    decision = answered(runner, Question.objects.get())
    source.commit(**{"docs/x.md": "Nobody cites this.\n"})
    fetch(project)
    assert not review_of(decision)
    source.commit(**{"src/a.py": "a = 4\n"})
    fetch(project)
    assert review_of(decision) == "the code that it cites has changed: src/a.py"


def test_a_lost_commit_hides_neither_its_decision_nor_others(
    runner: Runner, project: Project, source: GitRepository, caplog: pytest.LogCaptureFixture
) -> None:
    decision, other = answered(runner, asking(runner, project)), ruled(runner, project)
    Task.objects.update(head_commit="0" * 40)
    source.commit(**{"src/a.py": "a = 3\n", "src/b.py": "b = 2\n"})
    with caplog.at_level(logging.WARNING):
        fetch(project)
    assert review_of(decision) == "the code that it cites has changed: src/a.py"
    assert review_of(other) == "the code that it cites has changed: src/b.py"
    assert "D-1 of project" in caplog.text


def test_a_name_that_leads_out_of_the_repository_hides_no_citation(runner: Runner, project: Project) -> None:
    """An agent writes the question, and git fails for `../a.py`."""
    decision = answered(runner, asking(runner, project))
    assert [one["path"] for one in decision.cites] == ["src/a.py"]


class TestUnread:
    """A decision whose citations could not be read is not one that cites nothing (D5)."""

    @pytest.fixture
    def decision(self, runner: Runner, project: Project) -> Decision:
        question = asking(runner, project)
        repository = paths.repository(project).path
        away = repository.with_name("away")
        shutil.move(repository, away)
        decision = answered(runner, question)
        shutil.move(away, repository)
        return decision

    def test_it_answers_no_question(
        self, runner: Runner, project: Project, decision: Decision, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert [(one["path"], one["blob"]) for one in decision.cites] == [("src/a.py", UNREAD)]
        monkeypatch.setattr("tasks_app.services.decisions.applying.CONFIRMERS", 1)
        Project.objects.update(overrides={"apply_decisions": True})
        again = asking(runner, Project.objects.get())
        Decision.objects.update(review_reason="", review_note="")  # the fetch asks for a review as well
        found = find_match(again)
        assert found and found.blocker == "the code that it cites could not be read when it was decided"
        page = signed_in(runner.user).get(f"/projects/{project.pk}/decisions/{decision.number}/").text
        assert "could not be read when it was decided" in page

    def test_somebody_is_asked_at_the_next_fetch(self, project: Project, decision: Decision) -> None:
        mark_stale(project)
        assert review_of(decision) == "the code that it cites has changed: src/a.py"

    def test_words_that_are_no_files_are_forgotten(self, project: Project, decision: Decision) -> None:
        Decision.objects.update(cites=[{"path": "and/or", "blob": UNREAD}])
        mark_stale(project)
        assert not review_of(decision) and decision.cites == []


def test_d6_files_with_odd_names_are_cited(runner: Runner, project: Project, source: GitRepository) -> None:
    """By a decision's paths, which may look like patterns, and by its text."""
    odd = ["app/[id]/page.tsx", "app/(group)/x.py", "docs/my file.md", "src/{x}.py", ":(top)/a.md", "!x.md"]
    source.commit(**dict.fromkeys(odd, "Some text.\n"))
    fetch(project)
    listed = [f"./{name}" if name == "!x.md" else name for name in odd]
    by_paths = make_decision(
        project, DecisionContent("It is so.", scope="paths", paths=listed), by=acting(runner.user)
    )
    assert {one["path"] for one in by_paths.cites} == set(odd)
    by_text = ruled(runner, project, "See " + ", ".join(f"`{name}`" for name in odd))
    assert {one["path"] for one in by_text.cites} == set(odd)
