"""Reviewing by the API and in the terminal: what is sent, shown and refused there (V3, V4, V5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tasks_app.cli.command import Exit
from tasks_app.core.phases import Phase
from tasks_app.engine.publishing import pull_requests as engine
from tasks_app.engine.publishing.pull_requests import look
from tasks_app.management.commands import review as command
from tasks_app.models import (
    Channel,
    PullRequest,
    QuestionState,
    Reason,
    Review,
    ReviewThread,
    ReviewVerdict,
    Side,
    Task,
    ThreadComment,
    ThreadState,
    User,
)
from tasks_app.services.reviews import NewThread, counted_approvals, send_review
from tests.api import Script
from tests.factories import MembershipFactory, RunFactory
from tests.fake_script import Turn, ask, say, write
from tests.forges.fake import FakeForge
from tests.integration.conftest import Manage
from tests.integration.test_reviews import done as finished
from tests.people import acting
from tests.results import Result
from tests.runner import Runner, diff_of, runs

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def done(done: Result) -> Result:
    """It has a run, too, so that changes can be requested."""
    done.task.steps.update(phase=Phase.DONE)
    RunFactory.create(task=done.task, step=done.task.steps.get(name="implement"), outcome="finished")
    return done


@pytest.fixture
def api(done: Result) -> Script:
    return Script(done.runner.user)


@pytest.fixture
def review(done: Result, manage: Manage) -> Command:
    """`cat-herder review` of the task: exit code, stdout and stderr."""
    return lambda *words: manage("review", done.task.pk, "--as", done.runner.user.username, *words)


@pytest.fixture
def ran_here(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The tasks that a command has run in this terminal."""
    ran: list[Task] = []

    def run(task: Task, *arguments: object, **options: object) -> Exit:
        ran.append(task)
        return Exit.DONE

    monkeypatch.setattr(command, "run_task_locally", run)
    return ran


@pytest.fixture
def from_the_forge(done: Result, monkeypatch: pytest.MonkeyPatch) -> ReviewThread:
    """A thread that somebody opened in the pull request."""
    forge = FakeForge()
    monkeypatch.setattr(engine, "forge_of", lambda project: forge)
    monkeypatch.setattr("tasks_app.services.publishing.publications.pull_request_hindrance", lambda _: "")
    opened = done.publish(pull_request=True).opened
    assert opened is not None
    forge.comment(1, "Why blue?", path="paint.txt", line=1, commit=done.task.head_commit)
    PullRequest.objects.update(next_look_at=opened.opened_at)
    assert look(opened.pk)
    return ReviewThread.objects.get()


def sent(done: Result, verdict: ReviewVerdict, **options: Any) -> Review:
    return send_review(done.task, verdict, by=done.by, via=Channel.WEB, **options)


def printed(review: Command) -> Any:
    code, out, err = review("--json")
    assert (code, err) == (0, "")
    return json.loads(out)


class TestApi:
    def test_a_review_is_sent_with_its_threads(self, done: Result, api: Script) -> None:
        url = f"/tasks/{done.task.pk}"
        threads = [
            {"text": "Too plain.", "path": "paint.txt", "line": 1},
            {"text": "Is it tested?"},
        ]
        answer = api.post(f"{url}/reviews", {"verdict": "comment", "body": "Nearly.", "threads": threads})
        assert answer.status_code == 201, answer.content
        made = answer.json()
        assert (made["number"], made["verdict"], made["body"]) == (1, "comment", "Nearly.")
        assert [one["line_text"] for one in made["threads"]] == ["blue", ""]
        assert {one["review"] for one in made["threads"]} == {1}
        (comment,) = made["threads"][0]["comments"]
        assert (comment["author"], comment["by"]["username"]) == (done.runner.user.shown_name, "ann")
        listed = api.get(f"{url}/reviews").json()
        assert listed == {"items": [made], "threads": []}
        assert api.get(f"{url}/threads").json()["items"] == made["threads"]
        assert Review.objects.get().via == Channel.API

    def test_a_fault_in_a_thread_is_located_and_nothing_is_stored(self, done: Result, api: Script) -> None:
        body = {
            "verdict": "comment",
            "threads": [{"text": "a"}, {"text": "b", "path": "paint.txt", "line": 9}],
        }
        answer = api.post(f"/tasks/{done.task.pk}/reviews", body)
        assert answer.status_code in (400, 422) and b"body.threads.1.line" in answer.content
        assert not Review.objects.exists() and not ReviewThread.objects.exists()

    def test_requested_changes_resume_the_task(self, done: Result, api: Script) -> None:
        body = {"verdict": "request_changes", "body": "Red, please."}
        made = api.post(f"/tasks/{done.task.pk}/reviews", body).json()
        assert made["agent"] == "waiting"
        done.task.refresh_from_db()
        assert done.task.phase == done.task.steps.get(name="implement").phase == Phase.PENDING

    def test_a_thread_is_answered_resolved_and_opened_again(self, done: Result, api: Script) -> None:
        sent(done, ReviewVerdict.COMMENT, threads=[NewThread("Why?", "paint.txt", line=1)])
        url = f"/tasks/{done.task.pk}/threads/1"
        replied = api.post(f"{url}/reply", {"text": "Please do."}).json()
        assert [one["text"] for one in replied["comments"]] == ["Why?", "Please do."]
        assert api.post(f"{url}/resolve", {}).json()["state"] == ThreadState.RESOLVED
        assert api.post(f"{url}/resolve", {"reopen": True}).json()["state"] == ThreadState.OPEN

    def test_only_the_newest_result_is_approved(self, done: Result, api: Script) -> None:
        seen = done.task.head_commit
        done.work_on("red\n")
        url = f"/tasks/{done.task.pk}/reviews"
        assert api.post(url, {"verdict": "approve", "commit": seen}).status_code == 409
        assert not Review.objects.exists()
        made = api.post(url, {"verdict": "approve", "commit": done.task.head_commit}).json()
        assert made["holds"] is True

    @pytest.mark.parametrize("ends", ["a request for changes", "new code"])
    def test_an_approval_that_has_ended_does_not_hold(self, done: Result, api: Script, ends: str) -> None:
        sent(done, ReviewVerdict.APPROVE)
        if ends == "new code":
            done.work_on("red\n")
        else:
            sent(done, ReviewVerdict.REQUEST_CHANGES, body="I saw a fault.", notify=False)
        items = api.get(f"/tasks/{done.task.pk}/reviews").json()["items"]
        assert [one["holds"] for one in items] == ([False] if ends == "new code" else [False, False])

    def test_a_comment_from_the_pull_request_is_its_authors(
        self, done: Result, api: Script, from_the_forge: ReviewThread
    ) -> None:
        url = f"/tasks/{done.task.pk}"
        listed = api.get(f"{url}/reviews").json()
        assert listed["items"] == []
        (thread,) = listed["threads"]
        assert (thread["review"], thread["pull_request"], thread["line"]) == (None, 1, 1)
        (comment,) = thread["comments"]
        assert (comment["author"], comment["by"], comment["step"]) == ("octocat on GitHub", None, "")
        assert api.get(f"{url}/threads").json()["items"] == [thread]


class TestTerminal:
    def test_comments_stand_on_lines_ranges_and_what_was_there_before(
        self, done: Result, review: Command
    ) -> None:
        done.work_on("one\ntwo\nthree\n")
        code, out, err = review(
            "--body", "Nearly.", "--comment", "paint.txt:2: Why two?", "--comment", "paint.txt:1-3: All?",
            "--comment", "Thanks: a lot.", "--before", "cat-herder.yaml:1: Was it right?",
        )  # fmt: skip
        assert (code, err) == (0, "")
        assert [(one.place, one.side) for one in done.task.threads.order_by("number")] == [
            ("paint.txt:2", Side.NEW), ("paint.txt:1-3", Side.NEW), ("", Side.NEW),
            ("cat-herder.yaml:1", Side.OLD),
        ]  # fmt: skip
        assert Review.objects.get().via == Channel.TERMINAL
        for words in (
            "Review 1 · ann commented",
            "Nearly.",
            "Thread 1 · paint.txt:2 · open",
            "Thread 2 · paint.txt:1-3 · open",
            "Thread 4 · cat-herder.yaml:1, before the change · open",
            "ann: Why two?",
        ):
            assert words in out, words

    def test_threads_are_answered_resolved_and_opened_again(self, done: Result, review: Command) -> None:
        review("--comment", "One.", "--comment", "Two.")
        code, out, _ = review("--reply", "2", "Please do.", "--resolve", "1")
        assert code == 0 and "ann: Please do." in out and "Thread 1 · the whole result · resolved" in out
        assert "Thread 1 · the whole result · open" in review("--reopen", "1")[1]
        assert Review.objects.count() == 1

    def test_of_an_impossible_call_nothing_is_stored(self, done: Result, review: Command) -> None:
        review("--comment", "One.")
        for words in (
            ("--reply", "1", "Yes.", "--resolve", "7"),
            ("--resolve", "1", "--reopen", "7"),
            ("--reply", "1", "Yes.", "--comment", "paint.txt:9: There is no such line."),
            ("--resolve", "1", "--before", "no place"),
            ("--resolve", "1", "--here"),
            ("--comment", "Two.", "--here"),
        ):
            code, _, err = review(*words)
            assert code != 0 and err, words
        assert ThreadComment.objects.get().text == "One."
        assert ReviewThread.objects.get().state == ThreadState.OPEN

    def test_here_does_the_requested_changes_in_this_terminal(
        self, done: Result, review: Command, ran_here: list[Task]
    ) -> None:
        code, _, err = review("--request-changes", "--body", "Red, please.", "--here")
        assert (code, err) == (0, "")
        assert [task.phase for task in ran_here] == [Phase.PENDING]

    def test_without_a_verdict_here_does_nothing(
        self, done: Result, review: Command, ran_here: list[Task]
    ) -> None:
        code, _, err = review("--here")
        assert code == 2 and "--here needs --request-changes" in err and not ran_here

    def test_an_approval_and_how_it_ended(self, done: Result, review: Command) -> None:
        assert "Nobody has reviewed" in review()[1]
        seen = done.task.head_commit
        out = review("--approve")[1]
        assert "Review 1 · ann approved" in out and "ended" not in out
        done.work_on("red\n")
        assert "ann approved, ended: the code has changed, or" in review()[1]
        code, _, err = review("--approve", "--commit", seen)
        assert code == 1 and "has changed since you looked at it" in err
        review("--approve")
        out = review("--request-changes", "--body", "I saw a fault.")[1]
        assert "Review 2 · ann approved, ended" in out
        assert [one["holds"] for one in printed(review)["reviews"]] == [False] * 3

    def test_the_newest_approval_of_a_person_counts(self, done: Result, review: Command) -> None:
        review("--approve")
        out = review("--approve")[1]
        assert "Review 1 · ann approved, ended" in out
        assert [one["holds"] for one in printed(review)["reviews"]] == [False, True]

    def test_threads_of_the_pull_request_follow_the_reviews(
        self, done: Result, review: Command, from_the_forge: ReviewThread
    ) -> None:
        out = review("--body", "Look there.")[1]
        assert (
            out.index("Look there.")
            < out.index("From the pull request")
            < out.index("Thread 1 · paint.txt:1")
        )
        assert "octocat on GitHub: Why blue?" in out and "agent" not in out
        shown = printed(review)
        assert [one["number"] for one in shown["threads"]] == [1]
        assert shown["reviews"][0]["threads"] == []


def test_the_agents_comment_names_its_step(done: Result, api: Script, review: Command) -> None:
    sent(done, ReviewVerdict.COMMENT, threads=[NewThread("Why?")])
    run = done.task.steps.get(name="implement").runs.get()
    ThreadComment.objects.create(thread=done.task.threads.get(), run=run, text="Because.", key="1")
    comment = api.get(f"/tasks/{done.task.pk}/threads").json()["items"][0]["comments"][1]
    assert (comment["author"], comment["step"], comment["by"]) == ("agent of implement", "implement", None)
    assert "agent of implement: Because." in review()[1]
    shown = review("--diff")[1]
    assert shown.startswith("diff --git a/") and "\n+" in shown


def test_an_answer_is_taken_back_in_the_terminal(runner: Runner, manage: Manage, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    task = runner.task(lambda prompt: [Turn("I ask.", (ask("Red?"),)), say("Painted.")])
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    question = task.questions.get()
    words = ("answer", "--as", runner.user.username, question.pk)
    code, out, _ = manage(*words, "Blue")
    assert code == 0 and "--undo takes it back" in out
    code, out, _ = manage(*words, "--undo")
    assert code == 0 and f"Question {question.pk} is open again." in out
    question.refresh_from_db()
    task.refresh_from_db()
    assert (question.state, task.phase) == (QuestionState.OPEN, Phase.WAITING_FOR_INPUT)
    manage(*words, "Red")
    Task.objects.update(undo_until=None)  # a worker has claimed the task
    code, _, err = manage(*words, "--undo")
    assert code == 1 and "It is too late: the agent has the answer." in err


@pytest.mark.parametrize("where", ["the API", "the terminal"])
def test_requested_changes_reach_the_agent_with_the_threads_of_others(
    runner: Runner, manage: Manage, where: str
) -> None:
    """V4, V5: and an approval that comes from there counts."""
    task = finished(runner, Turn(calls=(write("paint.txt", "crimson\n"),)), say("Changed."))
    second: User = MembershipFactory.create(project=task.project, user__username="second").user
    threads = [NewThread("Is it tested?")]
    send_review(task, ReviewVerdict.COMMENT, by=acting(second), via=Channel.WEB, threads=threads)
    url = f"/tasks/{task.pk}/reviews"
    if where == "the API":
        thread = {"text": "Why blue?", "path": "paint.txt", "line": 3}
        body = {"verdict": "request_changes", "threads": [thread]}
        assert Script(runner.user).post(url, body).status_code == 201
    else:
        words = ("--request-changes", "--comment", "paint.txt:3: Why blue?")
        assert manage("review", task.pk, "--as", runner.user.username, *words)[0] == 0
    task.refresh_from_db()
    assert runner.advance(task).phase == Phase.DONE, task.failure
    (again,) = (run for run in runs(task) if run.reason == Reason.REVIEW and run.step.name == "implement")
    assert again.resumed and "Is it tested?" in again.prompt and "Why blue?" in again.prompt
    assert "crimson" in diff_of(task) and counted_approvals(task) == 0
    if where == "the API":
        assert Script(second).post(url, {"verdict": "approve"}).json()["holds"] is True
    else:
        assert manage("review", task.pk, "--as", "second", "--approve")[0] == 0
    assert counted_approvals(task) == 1
