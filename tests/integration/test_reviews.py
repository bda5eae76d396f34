"""Reviewing a result: threads, sending back into the session that wrote the code, approvals (V3, V4, V5)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tasks_app.core.errors import BadInput, IllegalMove, NotAllowed, ResultChanged
from tasks_app.core.phases import Phase
from tasks_app.engine import crashpoints
from tasks_app.git import Repository, moved_files
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    Outcome,
    Reason,
    Review,
    ReviewThread,
    ReviewVerdict,
    Role,
    Side,
    Task,
    ThreadState,
    User,
    paths,
)
from tasks_app.schemas.reviews import ReviewsOut
from tasks_app.services.review_threads import Place, places_now, reply_to, resolve
from tasks_app.services.reviews import (
    NewThread,
    add_to_draft,
    approvals_of,
    change_draft,
    counted_approvals,
    draft_of,
    remove_from_draft,
    send_review,
)
from tasks_app.services.tasks import cancel_task
from tests.factories import ROUNDING, MembershipFactory, QuestionFactory
from tests.fake_script import Act, Call, End, Turn, ask, say, shell, write
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.racing import race
from tests.results import make_result
from tests.runner import Runner, diff_of, results, runs, step

THREE_STEPS = """\
publishPlan: true
pipelines:
  default:
    clarify: false
    steps:
    - name: plan
      command: plan-task
    - name: implement
      command: implement
      check:
        - type: shell
          command: test -s paint.txt
      retry: 1
    - name: review
      command: self-review
"""
PLAN = [Turn(calls=(write("PLAN.md", "# Plan\n"),)), say("Planned.")]
LOOK = [say("Looked at it.")]
PAINT = "red\ngreen\nblue\n"


def reply(number: int, text: str, name: str = "") -> Call:
    """What `cat-herder reply` does in the sandbox."""

    def work(workspace: Path) -> str:
        folder = workspace.parent / "home" / "replies"
        folder.mkdir(exist_ok=True)
        content = json.dumps({"thread": number, "text": text})
        (folder / f"{name or f'{number}-{len(text)}'}.json").write_text(content)
        return "noted"

    return Call("Bash", {"command": f"cat-herder reply {number} '{text}'"}, work)


def painting(*changes: Act) -> dict[str, Sequence[Act]]:
    """The agents of a task that paints; `changes` is what the painter does when it is sent back."""
    painter = [Turn(calls=(write("paint.txt", PAINT),)), say("Painted."), End(), *changes]
    return {"plan": PLAN, "implement": painter, "review": LOOK}


def done(runner: Runner, *changes: Act) -> Task:
    task = runner.task(painting(*changes), config=THREE_STEPS)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    return task


def on_line(line: int, text: str = "Why this?") -> NewThread:
    return NewThread(text, "paint.txt", line=line)


def request_changes(task: Task, user: User, *threads: NewThread, body: str = "") -> Review:
    return send_review(
        task, ReviewVerdict.REQUEST_CHANGES, by=acting(user), via=Channel.WEB, body=body, threads=threads
    )


def approve(task: Task, user: User, commit: str = "") -> Review:
    return send_review(task, ReviewVerdict.APPROVE, by=acting(user), via=Channel.WEB, commit=commit)


@pytest.fixture
def second(runner: Runner) -> User:
    return User.objects.create_user("bob")


def member_of(task: Task, user: User, role: Role = Role.MEMBER) -> User:
    MembershipFactory(user=user, project=task.project, role=role)
    return user


def test_v4_the_same_session_gets_all_open_threads_and_answers_by_number(runner: Runner) -> None:
    changes = [
        Turn(
            calls=(
                write("paint.txt", "crimson\ngreen\nblue\n"),
                reply(1, "Crimson now."),
                reply(2, "Kept: the sea."),
            )
        ),
        say("Changed."),
    ]
    task = done(runner, *changes)
    before = task.head_commit
    review = request_changes(
        task, runner.user, on_line(1, "Too plain."), on_line(3, "Why blue?"), body="Nearly."
    )
    task.refresh_from_db()
    assert task.phase == Phase.PENDING
    assert [one.phase for one in task.steps.all()] == [Phase.DONE, Phase.PENDING, Phase.PENDING]
    assert runner.advance(task).phase == Phase.DONE

    first, again = runs(task)[1:3]
    assert (again.reason, again.resumed) == (Reason.REVIEW, True)
    assert again.session_id == first.session_id
    for words in ("Nearly.", "Thread 1: paint.txt, line 1", "Too plain.", "Thread 2: paint.txt, line 3",
                  "Why blue?", "    3  blue", "cat-herder reply NUMBER"):  # fmt: skip
        assert words in again.prompt
    assert "crimson" in diff_of(task) and task.head_commit != before
    one, two = task.threads.order_by("number")
    assert (one.state, two.state) == (ThreadState.ANSWERED, ThreadState.ANSWERED)
    assert [comment.text for comment in one.comments.all()] == ["Too plain.", "Crimson now."]
    assert [comment.by for comment in two.comments.all()] == ["ann", "agent of implement"]
    review.refresh_from_db()
    assert (review.handed_in, review.commit) == (again, before)
    assert review.delivered_at is not None
    assert [order.threads for order in runner.fake.runs[-2:]] == [(1, 2), (1, 2)]


def test_v4_an_answered_review_says_so_and_in_which_run(
    runner: Runner, client: Client, manage: Manage
) -> None:
    """On the page, with the command, and by the API."""
    task = done(runner, Turn(calls=(write("paint.txt", "crimson\n"), reply(1, "Yes."))), say("Changed."))
    client.force_login(runner.user)

    def states() -> tuple[str, str, str]:
        page = client.get(f"/tasks/{task.pk}/diff/").text
        return page, manage("review", str(task.pk))[1], ReviewsOut.from_row(task).reviews[0].agent

    request_changes(task, runner.user, on_line(1, "Crimson?"))
    page, said, state = states()
    assert "waits for the agent" in page and "waits for the agent" in said and state == "waiting"
    assert runner.advance(task).phase == Phase.DONE
    page, said, state = states()
    assert "answered by the agent in run 2" in page and "answered by the agent in run 2" in said
    assert (state, ReviewsOut.from_row(task).reviews[0].answered_in) == ("answered", 2)
    assert "the agent has it" not in page + said


def test_v4_checks_and_later_steps_run_again_for_the_new_code(runner: Runner) -> None:
    changes: list[Act] = [
        Turn(calls=(shell(": > paint.txt"),)),
        say("Emptied."),
        End(),
        Turn(calls=(write("paint.txt", "x\n"),)),
        say("Filled."),
    ]
    task = done(runner, *changes)
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.DONE
    assert [(run.step.name, run.reason) for run in runs(task)] == [
        ("plan", "first"),
        ("implement", "first"), ("implement", "review"), ("implement", "check_failed"),
        ("review", "first"), ("review", "review"),
    ]  # fmt: skip
    rerun = runs(task)[-1]
    assert not rerun.resumed and "this step runs again" in rerun.prompt
    assert "Why this?" in rerun.prompt, "what was requested, else it takes the change for needless"


def test_v4_threads_without_a_reply_stay_open_and_ride_along_the_next_time(runner: Runner) -> None:
    task = done(runner, say("I did nothing."), End(), Turn(calls=(reply(1, "Now."),)), say("Done."))
    request_changes(task, runner.user, on_line(1, "Too plain."))
    runner.advance(task)
    thread = task.threads.get()
    assert thread.state == ThreadState.OPEN
    request_changes(task, runner.user)  # nothing new to say
    assert runner.advance(task).phase == Phase.DONE
    assert "Too plain." in runs(task)[3].prompt
    thread.refresh_from_db()
    assert thread.state == ThreadState.ANSWERED


def test_v4_the_agent_may_ask_back(runner: Runner) -> None:
    task = done(runner, Turn("Unsure.", (ask("Crimson?"),)), Turn(calls=(reply(1, "ok"),)), say("Done."))
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE
    assert task.threads.get().state == ThreadState.ANSWERED
    assert sum("1 thread is open" in run.prompt for run in runs(task)) == 1, "handed over once"


@pytest.mark.long
def test_v4_a_second_reviewer_at_the_same_time_rides_along(runner: Runner, second: User) -> None:
    """One wins and resumes the task; what the other sent is handed over, too."""
    task = done(runner, say("Both done."))
    member_of(task, second)
    request_changes(task, runner.user, on_line(1, "Mine."))
    request_changes(task, second, on_line(2, "Theirs."))
    assert runner.advance(task).phase == Phase.DONE
    of_painter = [run for run in runs(task) if run.step.name == "implement" and run.reason == Reason.REVIEW]
    assert "Mine." in of_painter[0].prompt and "Theirs." in of_painter[0].prompt
    assert not Review.objects.undelivered().exists()


def test_v4_what_is_sent_while_the_agent_works_is_handed_over_before_the_task_is_done(
    runner: Runner, second: User
) -> None:
    task = done(runner, say("First."), End(), Turn(calls=(reply(2, "Second, too."),)), say("Second."))
    member_of(task, second)
    request_changes(task, runner.user, on_line(1, "Mine."))
    sent: list[Review] = []

    def send_meanwhile() -> str:
        if not sent and Task.objects.get(pk=task.pk).phase == Phase.RUNNING:
            sent.append(request_changes(Task.objects.get(pk=task.pk), second, on_line(2, "Theirs.")))
        return ""

    inner = runner.fake.script

    def script(prompt: str) -> Sequence[Act]:
        send_meanwhile()
        return inner(prompt)

    runner.fake.script = script
    assert runner.advance(task).phase == Phase.DONE
    assert sent and not Review.objects.undelivered().exists()
    assert task.threads.get(number=2).state == ThreadState.ANSWERED


@pytest.mark.long
@pytest.mark.parametrize("point", ["run-opened", "agent-ended", "result-stored", "work-recorded", "checked"])
def test_v4_a_worker_that_dies_hands_over_once(
    runner: Runner, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = done(runner, Turn(calls=(reply(1, "Done."),)), say("Changed."))
    request_changes(task, runner.user, on_line(1))

    class Died(BaseException):
        pass

    def die(code: int) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(crashpoints, "_armed", point)
        patch.setattr(crashpoints, "os", SimpleNamespace(_exit=die))
        with pytest.raises(Died):
            runner.advance(task)
    Task.objects.update(lease_expires=None, lease_owner="")
    assert runner.advance(task).phase == Phase.DONE
    thread = task.threads.get()
    assert thread.state == ThreadState.ANSWERED
    assert [comment.text for comment in thread.comments.all()] == ["Why this?", "Done."]
    asked = [run for run in runs(task) if "1 thread is open" in run.prompt and run.step.name == "implement"]
    assert len([run for run in asked if run.outcome == Outcome.FINISHED]) <= 1


def test_v4_a_lost_session_is_replaced_by_one_that_reads_the_threads(runner: Runner) -> None:
    from tasks_app.models import SessionEntry

    task = done(runner)
    request_changes(task, runner.user, on_line(2, "Greener!"))
    SessionEntry.objects.all().delete()
    assert runner.advance(task).phase == Phase.DONE
    again = runs(task)[2]
    assert not again.resumed and "Greener!" in again.prompt and "PREVIOUS ACTIONS" in again.prompt


def test_v4_a_failed_task_can_be_sent_back(runner: Runner) -> None:
    task = runner.task(
        {
            "plan": PLAN,
            "implement": [say("Nothing."), End(), say("Still."), End(), say("No.")],
            "review": LOOK,
        },
        config=THREE_STEPS,
    )
    assert runner.advance(task).phase == Phase.FAILED
    request_changes(task, runner.user, body="Write paint.txt, please.")
    runner.advance(task)
    prompt = next(run.prompt for run in runs(task) if run.reason == Reason.REVIEW)
    assert "Write paint.txt, please." in prompt


@pytest.mark.parametrize("phase", ["not started", "cancelled"])
def test_v4_a_task_without_a_result_cannot_be_sent_back(runner: Runner, phase: str) -> None:
    task = runner.task(painting(), config=THREE_STEPS)
    if phase == "cancelled":
        runner.advance(task)
        Task.objects.filter(pk=task.pk).update(phase=Phase.RUNNING)
        cancel_task(task, by=acting(runner.user))
        expected: type[Exception] = IllegalMove
    else:
        expected = BadInput
    with pytest.raises(expected):
        request_changes(task, runner.user, body="Change it.")
    assert not Review.objects.exists()


def test_v3_a_draft_is_collected_and_sent_as_one_review(runner: Runner, second: User) -> None:
    task = done(runner)
    member_of(task, second)
    me = acting(runner.user)
    first = add_to_draft(task, on_line(1, "One."), by=me)
    add_to_draft(task, on_line(2, "Two."), by=me)
    third = add_to_draft(task, NewThread("All of it.", "PLAN.md"), by=me)
    change_draft(first, "One, better.", by=me)
    remove_from_draft(third, by=me)
    draft = draft_of(task, me)
    assert draft and draft.threads.count() == 2 and draft_of(task, acting(second)) is None
    with pytest.raises(BadInput, match="somebody else"):
        change_draft(first, "Mine!", by=acting(second))
    sent = send_review(task, ReviewVerdict.COMMENT, by=me, via=Channel.WEB, with_draft=True)
    assert sent.pk == draft.pk and draft_of(task, me) is None
    assert [(t.number, t.comments.get().text) for t in task.threads.order_by("number")] == [
        (1, "One, better."), (2, "Two."),
    ]  # fmt: skip
    task.refresh_from_db()
    assert task.phase == Phase.DONE, "a comment resumes nothing"
    entry = AuditEntry.objects.get(action=Action.REVIEWED)
    assert (entry.actor, entry.detail["verdict"], entry.detail["threads"]) == (runner.user, "comment", 2)
    with pytest.raises(BadInput, match="sent already"):
        change_draft(first, "Too late.", by=me)


def test_v3_a_form_that_is_sent_twice_makes_one_review(runner: Runner) -> None:
    task = done(runner)
    sent = [
        send_review(
            task, ReviewVerdict.COMMENT, by=acting(runner.user), via=Channel.WEB, body="Hm.", form_key="k1"
        )
        for _ in range(2)
    ]
    assert sent[0].pk == sent[1].pk and Review.objects.count() == 1


@pytest.mark.parametrize(
    ("thread", "fault"),
    [
        (NewThread("?", "paint.txt", line=4), "thread.line: paint.txt has 3 lines, so there is no line 4"),
        (NewThread("?", "paint.txt", line=0), "no line 0"),
        (NewThread("?", "nowhere.txt", line=1), "thread.path: there is no file 'nowhere.txt' in the result"),
        (NewThread("?", "../secret", line=1), "thread.path: a path is relative"),
        (NewThread("?", "/etc/passwd", line=1), "thread.path: a path is relative"),
        (NewThread("?", line=1), "thread.path: a line needs the path of its file"),
        (NewThread(" ", "paint.txt", line=1), "thread.text: the comment is empty"),
        (NewThread("?", "paint.txt", line=2, first_line=3), "thread.first_line: a range ends at `line`"),
        (NewThread("?", "paint.txt", side=Side.OLD, line=1), "in what was there before"),
    ],
)
def test_v3_a_thread_must_stand_somewhere(runner: Runner, thread: NewThread, fault: str) -> None:
    task = done(runner)
    with pytest.raises(BadInput) as caught:
        request_changes(task, runner.user, on_line(1), thread)
    assert fault in str(caught.value)
    assert not Review.objects.exists() and not ReviewThread.objects.exists()
    task.refresh_from_db()
    assert task.phase == Phase.DONE


def test_v3_an_empty_review_is_refused(runner: Runner) -> None:
    task = done(runner)
    for verdict in (ReviewVerdict.COMMENT, ReviewVerdict.REQUEST_CHANGES):
        with pytest.raises(BadInput, match="write a comment"):
            send_review(task, verdict, by=acting(runner.user), via=Channel.WEB, body=" \n")


def test_v3_threads_about_files_and_the_whole_stay_where_a_line_is_outdated(runner: Runner) -> None:
    changes = [
        Turn(calls=(shell("printf 'white\\nred\\ngreen!\\nblue\\n' > paint.txt; mv paint.txt art.txt"),)),
        Turn(calls=(shell("printf 'x\\n' > paint.txt"),)),
        say("Changed."),
    ]
    task = done(runner, *changes)
    request_changes(
        task, runner.user, on_line(1), on_line(2), NewThread("The whole", "PLAN.md"), NewThread("All")
    )
    red, green, plan, whole = task.threads.order_by("number")
    assert places_now(task, [red, green])[red.pk] == Place("paint.txt", 1)
    runner.advance(task)
    repainted = places_now(task, list(task.threads.all()))
    assert repainted[plan.pk] == Place("PLAN.md", None) and repainted[whole.pk] == Place("", None)
    assert repainted[green.pk] is None, "outdated: the line was changed"


def test_v3_replies_open_a_thread_again_and_it_can_be_resolved(runner: Runner) -> None:
    task = done(runner, Turn(calls=(reply(1, "No."),)), say("Stays."))
    request_changes(task, runner.user, on_line(1))
    runner.advance(task)
    thread = task.threads.get()
    assert thread.state == ThreadState.ANSWERED
    reply_to(thread, "But yes.", by=acting(runner.user))
    assert thread.state == ThreadState.OPEN
    resolve(thread, by=acting(runner.user))
    resolve(thread, by=acting(runner.user))
    assert (thread.is_resolved, thread.resolved_by) == (True, runner.user)
    assert AuditEntry.objects.filter(action=Action.THREAD_RESOLVED).count() == 1
    resolve(thread, by=acting(runner.user), reopen=True)
    assert thread.state == ThreadState.OPEN
    with pytest.raises(BadInput, match="empty"):
        reply_to(thread, " ", by=acting(runner.user))


def test_v4_replies_that_make_no_sense_change_nothing(runner: Runner) -> None:
    def garbage(workspace: Path) -> str:
        folder = workspace.parent / "home" / "replies"
        folder.mkdir(exist_ok=True)
        for name, content in {
            "a": "[", "b": "[]", "c": '{"thread": 99, "text": "x"}', "d": '{"thread": "1; rm", "text": "x"}',
            "e": '{"thread": 1, "text": " "}', "f": '{"thread": 1e400, "text": "x"}', "g": "[" * 100_000,
        }.items():  # fmt: skip
            (folder / f"{name}.json").write_text(content)
        (folder / "link.json").symlink_to("/etc/passwd")
        return ""

    task = done(runner, Turn(calls=(Call("Bash", {"command": "true"}, garbage),)), say("Hm."))
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.DONE
    assert task.threads.get().comments.count() == 1


def test_v5_an_approval_names_the_commit_and_ends_when_the_code_changes(runner: Runner, second: User) -> None:
    task = done(runner, Turn(calls=(write("paint.txt", "grey\n"),)), say("Grey."))
    member_of(task, second)
    seen = task.head_commit
    approve(task, second, seen)
    own = approve(task, runner.user)
    assert own.commit == seen and len(approvals_of(task)) == 2
    assert counted_approvals(task) == 1, "not by who created the task"
    request_changes(task, second, on_line(1))
    assert [review.author for review in approvals_of(task)] == [runner.user], "they changed their mind"
    runner.advance(task)
    assert approvals_of(task) == []
    with pytest.raises(ResultChanged, match="changed since you looked"):
        approve(task, second, seen)
    approve(task, second, task.head_commit)
    assert counted_approvals(task) == 1


def test_v5_only_a_done_task_is_approved(runner: Runner) -> None:
    task = runner.task({"plan": PLAN, "implement": [Turn("?", (ask("Red?"),))]}, config=THREE_STEPS)
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    with pytest.raises(IllegalMove, match="not done"):
        approve(task, runner.user)


def test_v3_who_may_only_look_cannot_review(runner: Runner, second: User) -> None:
    task = done(runner)
    member_of(task, second, Role.VIEWER)
    with pytest.raises(NotAllowed):
        send_review(task, ReviewVerdict.COMMENT, by=acting(second), via=Channel.WEB, body="Hm.")
    with pytest.raises(NotAllowed):
        add_to_draft(task, on_line(1), by=acting(second))
    assert not Review.objects.exists()


@pytest.mark.long
def test_v4_a_workspace_that_was_removed_is_made_again(runner: Runner) -> None:
    task = done(runner, Turn(calls=(shell("cat paint.txt > seen.txt"),)), say("Seen."))
    paths.remove_folder(paths.workspace(task).path)
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.DONE
    assert "seen.txt" in diff_of(task) and step(task, "implement").phase == Phase.DONE
    assert results(task)


@pytest.mark.long
@pytest.mark.parametrize("number", range(4))
def test_v4_two_who_request_changes_at_the_same_moment_are_both_handed_over(
    runner: Runner, second: User, number: int
) -> None:
    task = make_result(runner).task
    member_of(task, second)
    race(
        number,
        lambda: str(request_changes(task, runner.user, on_line(1, "Mine."))),
        lambda: str(request_changes(task, second, on_line(1, "Theirs."))),
    )
    task.refresh_from_db()
    assert task.phase == Phase.PENDING
    assert sorted(review.number or 0 for review in task.reviews.all()) == [1, 2]
    assert task.threads.numbers() == (1, 2)
    assert Review.objects.undelivered().count() == 2
    assert AuditEntry.objects.filter(action=Action.REVIEWED).count() == 2


@pytest.mark.long
@pytest.mark.parametrize("number", range(2))
def test_v3_a_form_that_is_sent_twice_at_once_makes_one_review(runner: Runner, number: int) -> None:
    task, me = make_result(runner).task, acting(runner.user)
    add_to_draft(task, on_line(1, "Once."), by=me)

    def send() -> str:
        sent = send_review(
            task, ReviewVerdict.COMMENT, by=me, via=Channel.WEB, with_draft=True, form_key="one-form"
        )
        return str(sent.number)

    assert [one.said for one in race(number, send, send)] == ["1", "1"]
    assert Review.objects.get().threads.get().number == 1


@pytest.mark.long
@pytest.mark.parametrize("commit", ["HEAD", "--help", "main", "0" * 40, "../x"])
def test_v5_a_commit_that_is_none_is_refused(runner: Runner, commit: str) -> None:
    task = make_result(runner).task
    with pytest.raises(BadInput, match="commit: the portal has no commit"):
        approve(task, runner.user, commit)


def test_v3_a_thread_moves_with_its_line_and_is_outdated_when_it_changes(runner: Runner) -> None:
    result = make_result(runner)
    result.work_on("a\nb\nc\n")
    moved, changed = (NewThread("?", "paint.txt", line=line) for line in (2, 3))
    review = send_review(
        result.task, ReviewVerdict.COMMENT, by=result.by, via=Channel.WEB, threads=[moved, changed]
    )
    assert [thread.line_text for thread in review.threads.order_by("number")] == ["b", "c"]
    result.work_on("new\na\nb\nC\n")
    threads = list(result.task.threads.order_by("number"))
    assert list(places_now(result.task, threads).values()) == [Place("paint.txt", 3), None]
    result.work_on("b\n")
    assert list(places_now(result.task, threads).values()) == [Place("paint.txt", 1), None]


def test_v3_a_thread_follows_a_renamed_file(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(1, 11)]
    source = GitRepository.make(tmp_path / "source", **{"old.txt": "\n".join(lines), "gone.txt": "x"})
    base = source.git("rev-parse", "HEAD")
    source.git("mv", "old.txt", "new.txt")
    source.git("rm", "-q", "gone.txt")
    head = source.commit(**{"new.txt": "\n".join(["first", *lines[:4], "changed", *lines[6:]])})
    repository = Repository(source.path / ".git", str(source.path))
    files = moved_files(repository, base=base, head=head, paths=["old.txt", "gone.txt", "same.txt"])
    assert [files["old.txt"].line(number) for number in (1, 4, 5, 6, 7, 10)] == [2, 5, None, None, 7, 10]
    assert [file.path for _, file in sorted(files.items())] == [None, "new.txt", "same.txt"]
    assert files["gone.txt"].line(1) is None


GUARDED_STEPS = """\
pipelines:
  default:
    clarify: false
    steps:
    - name: plan
      command: plan-task
      fileAccess: {allowWrite: [PLAN.md]}
    - name: implement
      command: implement
      fileAccess: {allowWrite: [paint.txt, "src/**"]}
    - name: docs-update
      command: docs-update
      fileAccess: {allowWrite: ["docs/**", README.md]}
"""
WRITE_DOCS: list[Act] = [Turn(calls=(write("README.md", "The paint.\n"),)), say("Described.")]
CHANGE_DOCS: list[Act] = [Turn(calls=(write("README.md", "The best paint.\n"),)), say("Changed.")]
CHANGE_PAINT: list[Act] = [Turn(calls=(write("paint.txt", "crimson\n"),)), say("Changed.")]


def guarded(runner: Runner, config: str, *, paints: Sequence[Act] = (), writes: Sequence[Act] = ()) -> Task:
    """A done task whose code and documents were written by two steps; what each does afterwards follows."""
    play = painting(*paints) | {"docs-update": [*WRITE_DOCS, End(), *writes]}
    task = runner.task(play, config=config)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    return task


@pytest.mark.long
@pytest.mark.parametrize("auto_commit", ["", "autoCommit: true\n"])
@pytest.mark.parametrize("is_open", [True, False])
def test_v4_a_step_is_not_blamed_for_the_plan_that_the_portal_took_out(
    runner: Runner, is_open: bool, auto_commit: str
) -> None:
    """P7: the portal removed PLAN.md when the task was done, twice in a row."""
    config = auto_commit + GUARDED_STEPS
    if is_open:
        config = config.replace('      fileAccess: {allowWrite: [paint.txt, "src/**"]}\n', "")
    again: list[Act] = [Turn(calls=(write("README.md", "Once more.\n"),)), say("Changed.")]
    task = guarded(runner, config, writes=[*CHANGE_DOCS, End(), *again])
    for text in ("The best paint.\n", "Once more.\n"):
        request_changes(task, runner.user, NewThread("Praise it.", "README.md", line=1))
        assert runner.advance(task).phase == Phase.DONE, task.failure
        assert runs(task)[-1].step.name == "docs-update" and runs(task)[-1].resumed
        assert text.strip() in diff_of(task) and "PLAN.md" not in diff_of(task)


@pytest.mark.long
def test_v4_a_step_is_not_blamed_for_what_later_steps_and_the_portal_changed(runner: Runner) -> None:
    """P7: the documents and the missing plan are in the files with which the resumed step goes on."""
    hides = '      check: {type: shell, command: "echo x > .gitignore; touch x left-by-check"}\n'
    task = guarded(runner, GUARDED_STEPS + hides, paints=CHANGE_PAINT)
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    names = [run.step.name for run in runs(task)]
    assert names == ["plan", "implement", "implement", "docs-update", "docs-update"]
    assert "crimson" in diff_of(task) and "PLAN.md" not in diff_of(task)


def test_v4_what_the_resumed_step_itself_may_not_write_is_still_refused(runner: Runner) -> None:
    """P7: also a file that a later step has written."""
    work = shell("echo mine > README.md; echo x > other.txt; echo crimson > paint.txt")
    task = guarded(runner, GUARDED_STEPS, paints=[Turn(calls=(work,)), say("Changed.")])
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.FAILED
    assert task.failure.splitlines()[1:] == ["README.md", "other.txt"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("threads", "chosen"),
    [
        ([on_line(1)], "implement"),
        ([NewThread("Say more.", "README.md", line=1)], "docs-update"),
        ([NewThread("Say more.", "README.md", line=1), on_line(1), on_line(2)], "docs-update"),
        ([NewThread("Why at all?")], "docs-update"),
        ([NewThread("Why at all?", "cat-herder.yaml")], "docs-update"),
    ],
)
def test_v4_the_last_step_that_may_write_the_files_of_the_threads_gets_them(
    runner: Runner, threads: list[NewThread], chosen: str
) -> None:
    """Where none may write them all, the last that may write most of them; steps after it run again."""
    task = guarded(runner, GUARDED_STEPS)
    review = request_changes(task, runner.user, *threads)
    review.refresh_from_db()
    assert review.step == step(task, chosen)
    later = task.steps.filter(position__gte=review.step.position)
    assert {one.phase for one in later} == {Phase.PENDING}


def test_v4_of_steps_that_may_write_the_file_the_one_that_wrote_it_gets_it(runner: Runner) -> None:
    """Then what comes after it runs again, such as checks of the code."""
    task = guarded(runner, re.sub(r"\n +fileAccess: .*", "", GUARDED_STEPS))
    review = request_changes(task, runner.user, on_line(1))
    review.refresh_from_db()
    assert review.step == step(task, "implement")


@pytest.mark.long
def test_v4_a_step_that_may_write_anything_gets_what_is_said_of_the_whole(runner: Runner) -> None:
    config = GUARDED_STEPS.replace('      fileAccess: {allowWrite: [paint.txt, "src/**"]}\n', "")
    task = guarded(runner, config, paints=CHANGE_PAINT)
    review = request_changes(task, runner.user, body="Why at all?")
    review.refresh_from_db()
    assert review.step == step(task, "implement")
    assert runner.advance(task).phase == Phase.DONE, task.failure


def test_v4_threads_that_are_answered_do_not_count(runner: Runner) -> None:
    changes: list[Act] = [Turn(calls=(reply(1, "Kept."),)), *CHANGE_PAINT]
    task = guarded(runner, GUARDED_STEPS, paints=changes)
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    review = request_changes(task, runner.user, NewThread("Say more.", "README.md", line=1))
    review.refresh_from_db()
    assert review.step == step(task, "docs-update")


def test_v4_a_step_that_runs_again_knows_what_was_requested_of_itself_before(runner: Runner) -> None:
    """Its session is a new one, and a request that is about no line stands in no thread."""
    replied: list[Act] = [Turn(calls=(reply(1, "Done."),)), say("Described again.")]
    task = guarded(runner, GUARDED_STEPS, paints=[say("Changed.")], writes=replied)
    request_changes(task, runner.user, NewThread("Praise it.", "README.md", line=1), body="In one sentence.")
    assert runner.advance(task).phase == Phase.DONE, task.failure
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    again = step(task, "docs-update").runs.order_by("number").last()
    assert again and not again.resumed and "In one sentence." in again.prompt


def test_v4_a_session_is_told_what_later_steps_did_since_its_last_message(runner: Runner) -> None:
    paints: list[Act] = [say("Changed."), End(), say("Changed again.")]
    task = guarded(runner, GUARDED_STEPS, paints=paints)
    prompts: list[str] = []
    docs = step(task, "docs-update")
    told: dict[str, Any] = {"answers": {ROUNDING["question"]: "Half up"}, "state": "answered"}
    told |= {"answered_at": timezone.now(), "delivered_at": timezone.now()}
    QuestionFactory.create(task=task, run=docs.runs.first(), **told)
    docs.task.steps.update(phase=Phase.DONE)
    for _ in range(2):
        request_changes(task, runner.user, on_line(1))
        assert runner.advance(task).phase == Phase.DONE, task.failure
        again = step(task, "implement").runs.order_by("number").last()
        assert again and again.resumed
        prompts.append(again.prompt)
    first, second = prompts
    later = "Since your last message these steps have run: docs-update. These files have changed since then: "
    assert f"{later}README.md." in first
    account = "The agent of step docs-update wrote when it ended:\n> Described."
    assert account in first and "Planned." not in first, "it knows what came before it"
    assert second.count(account) == 1
    assert "when other steps asked" in first and "Half up" in first, "only its own answers reached it"
    assert "Half up" not in second, "it has read that"
    assert "have changed since then" not in second
