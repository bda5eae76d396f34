"""Retrying from a step: new runs, old ones as history, files as they are or as they were (P6, R1)."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.errors import BadInput, IllegalMove, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.engine import crashpoints
from tasks_app.models import Action, AuditEntry, Outcome, Reason, Role, Run, Step, Task, Transition, paths
from tasks_app.services.bulk import retry_from
from tasks_app.services.results import accounts_of
from tasks_app.services.tasks import cancel_task, resume_task
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, RunFactory, SequenceFactory, TaskFactory
from tests.fake_script import Fail, Turn, ask, say, shell, write
from tests.integration.conftest import Manage
from tests.people import acting
from tests.runner import ONE_STEP, TWO_STEPS, Runner, diff_of, file_in, runs, step

PLANNED = [Turn(calls=(write("PLAN.md", "# Plan\n"),)), say("Planned.")]
PAINTED = [Turn(calls=(write("paint.txt", "red\n"),)), say("Painted.")]


def done(runner: Runner) -> Task:
    task = runner.task({"plan": PLANNED, "implement": PAINTED}, config="publishPlan: true\n" + TWO_STEPS)
    assert runner.advance(task).phase == Phase.DONE
    return task


def test_a_done_task_is_done_again_from_a_step(runner: Runner) -> None:
    task = done(runner)
    sessions = {run.session_id for run in runs(task)}
    retry_from(task, step(task, "implement"), by=acting(runner.user))
    task.refresh_from_db()
    assert (task.phase, task.ended_at) == (Phase.PENDING, None)
    assert [one.phase for one in task.steps.all()] == [Phase.DONE, Phase.PENDING]
    assert file_in(task, "paint.txt").exists(), "the files are as they were left"
    assert runner.advance(task).phase == Phase.DONE
    planned, first, second = runs(task)
    assert (first.number, second.number) == (1, 2)
    assert (second.reason, second.resumed) == (Reason.RETRY, False)
    assert second.session_id not in sessions
    assert "An earlier attempt at it may have" in second.prompt and planned.prompt[:100] in second.prompt
    entry = AuditEntry.objects.get(action=Action.TASK_RETRIED)
    assert (entry.actor, entry.detail) == (runner.user, {"step": "implement", "put_back": False})
    assert Transition.objects.filter(source=Phase.DONE, target=Phase.PENDING).count() == 2


def test_all_steps_from_there_on_are_done_again(runner: Runner) -> None:
    task = done(runner)
    retry_from(task, step(task, "plan"), by=acting(runner.user))
    assert {one.phase for one in task.steps.all()} == {Phase.PENDING}
    runner.advance(task)
    assert [(run.step.name, run.number) for run in runs(task)] == [
        ("plan", 1), ("plan", 2), ("implement", 1), ("implement", 2),
    ]  # fmt: skip
    assert "paint.txt" in diff_of(task) and "PLAN.md" in diff_of(task)


def test_the_files_can_be_put_back_and_nothing_is_lost(runner: Runner) -> None:
    task = done(runner)
    file_in(task, "by-hand.txt").write_text("not recorded by any run")
    runner.agent = type(runner.fake)(lambda prompt: [Turn(calls=(shell("ls > seen.txt"),)), say("Looked.")])
    retry_from(task, step(task, "implement"), by=acting(runner.user), put_back=True)
    assert runner.advance(task).phase == Phase.DONE
    assert not file_in(task, "paint.txt").exists() and file_in(task, "PLAN.md").exists()
    assert "paint.txt" not in file_in(task, "seen.txt").read_text()
    assert "paint.txt" not in diff_of(task) and "PLAN.md" in diff_of(task)
    prompt = runs(task)[-1].prompt
    assert "after the files were put back to their state" in prompt and "may have left work" not in prompt
    assert "> Painted." not in prompt, "what it says is gone"
    assert [message.text for account in accounts_of([task]) for message in account.messages][1:] == [
        "Looked."
    ]
    task.refresh_from_db()
    assert task.reset_to == ""
    kept = paths.repository(task.project).git.line(
        "show", f"refs/cat-herder/{task.branch}/{task.pk}-02-2-replaced:by-hand.txt"
    )
    assert kept == "not recorded by any run"


def test_a_worker_that_dies_while_it_puts_files_back_leaves_it_to_the_next(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: the second look does not take the emptied folder for what was to be kept."""
    task = done(runner)
    retry_from(task, step(task, "implement"), by=acting(runner.user), put_back=True)

    class Died(BaseException):
        pass

    def die(folder: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(paths, "remove_folder", die)
        with pytest.raises(Died):
            runner.advance(task)
    assert runner.advance(task).phase == Phase.DONE
    ref = f"refs/cat-herder/{task.branch}/{task.pk}-02-2-replaced:paint.txt"
    assert paths.repository(task.project).git.line("show", ref) == "red"


def test_what_cannot_be_recorded_is_not_removed(runner: Runner) -> None:
    task = done(runner)
    retry_from(task, step(task, "implement"), by=acting(runner.user), put_back=True)
    file_in(task, ".GIT").mkdir()  # git takes no file in it
    file_in(task, ".GIT/paint.txt").write_text("precious")
    assert runner.advance(task).phase == Phase.DONE
    assert task.reset_to == "" and not file_in(task, ".GIT").exists()
    (aside,) = paths.workspace(task).path.parent.glob("workspace.*/.GIT/paint.txt")
    assert aside.read_text() == "precious"


def test_what_was_asked_before_is_history_and_not_asked_again(runner: Runner) -> None:
    """R1: an answer goes to the question it was meant for; the new session reads it as history."""
    asks = [Turn("I ask.", (ask("Red?"),)), say("Painted. {result}")]
    task = runner.task(asks)
    runner.advance(task)
    cancel_task(task, by=acting(runner.user))
    retry_from(task, step(task), by=acting(runner.user))
    runner.advance(task)
    old, new = task.questions.order_by("number")
    assert (old.state, new.state) == ("withdrawn", "open")
    cancel_task(task, by=acting(runner.user))
    resume_task(task, by=acting(runner.user))
    old.refresh_from_db()
    assert old.state == "withdrawn", "only what the last attempt waits for is asked again"
    runner.answer(task.questions.open().get(), "Blue")
    assert runner.advance(task).phase == Phase.DONE
    retry_from(task, step(task), by=acting(runner.user))
    runner.advance(task)
    assert "Blue" in runs(task)[-1].prompt and "HUMAN INTERACTION HISTORY" in runs(task)[-1].prompt


def test_a_failed_step_gets_all_its_attempts_again(runner: Runner) -> None:
    task = runner.task([Fail("No luck.")])
    assert runner.advance(task).phase == Phase.FAILED
    retry_from(task, step(task), by=acting(runner.user))
    runner.agent = type(runner.fake)(lambda prompt: [say("Done.")])
    assert runner.advance(task).phase == Phase.DONE
    assert [run.outcome for run in runs(task)] == [Outcome.FAILED, Outcome.FINISHED]
    assert (step(task).failures, step(task).failure) == (0, "")


def test_the_next_attempt_is_told_which_check_the_last_one_failed(runner: Runner) -> None:
    """P6: it begins in a new session, which knows nothing of it."""
    check = "      check: {type: shell, command: 'cat paint.txt && exit 3'}\n      retry: 0\n"
    task = runner.task(list(PAINTED), config=ONE_STEP + check)
    assert runner.advance(task).phase == Phase.FAILED
    retry_from(task, step(task), by=acting(runner.user))
    runner.advance(task)
    told = runs(task)[-1].prompt.partition("A person restarted this step.")[2]
    assert "cat paint.txt" in told and "red\n" in told


# ---- when it is not possible ----


@pytest.mark.django_db
@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING, Phase.WAITING_FOR_INPUT])
def test_what_is_under_way_is_not_retried(phase: Phase) -> None:
    task = RunFactory.create(task=TaskFactory.create(phase=phase)).step.task
    member = MembershipFactory.create(project=task.project).user
    with pytest.raises(IllegalMove, match="cancel it first"):
        retry_from(task, task.steps.get(position=1), by=acting(member))


@pytest.mark.django_db
def test_a_task_whose_sequence_went_on_is_not_retried_and_the_last_one_is() -> None:
    sequence = SequenceFactory.create(phase=Phase.DONE)
    first, last = (
        TaskFactory.create(project=sequence.project, sequence=sequence, file=f"0{n}.md", phase=Phase.DONE)
        for n in (1, 2)
    )
    for task in (first, last):
        RunFactory.create(step=task.steps.get(position=1))
        task.steps.update(phase=Phase.DONE)
    member = MembershipFactory.create(project=sequence.project).user
    with pytest.raises(IllegalMove, match="followed by another task of its sequence"):
        retry_from(first, first.steps.get(position=1), by=acting(member))
    retry_from(last, last.steps.get(position=1), by=acting(member))
    sequence.refresh_from_db()
    assert sequence.phase == Phase.PENDING, "it follows the task at hand"


@pytest.mark.django_db
def test_a_step_that_has_not_run_or_follows_one_that_is_not_done_is_refused() -> None:
    task = TaskFactory.create(phase=Phase.FAILED)
    plan, implement = task.steps.all()
    member = MembershipFactory.create(project=task.project).user
    with pytest.raises(BadInput, match="has not run yet"):
        retry_from(task, implement, by=acting(member))
    RunFactory.create(step=implement)
    with pytest.raises(BadInput, match="before “implement” is not done"):
        retry_from(task, implement, by=acting(member))
    RunFactory.create(step=plan)
    with pytest.raises(BadInput, match="is not known"):
        retry_from(task, plan, by=acting(member), put_back=True)
    retry_from(task, plan, by=acting(member))
    assert Step.objects.get(pk=implement.pk).first_run == 2


@pytest.mark.django_db
def test_a_viewer_retries_nothing() -> None:
    task = TaskFactory.create(phase=Phase.DONE)
    viewer = MembershipFactory.create(project=task.project, role=Role.VIEWER).user
    with pytest.raises(NotAllowed):
        retry_from(task, task.steps.get(position=1), by=acting(viewer))


# ---- on the page ----


@pytest.fixture
def failed(db: None) -> Task:
    task = TaskFactory.create(phase=Phase.FAILED, steps=("plan", "implement", "review"))
    plan, implement, _ = task.steps.all()
    Step.objects.filter(pk=plan.pk).update(phase=Phase.DONE, base_commit="a" * 40)
    Step.objects.filter(pk=implement.pk).update(phase=Phase.FAILED)
    for one in (plan, implement):
        RunFactory.create(step=one, outcome=Outcome.FINISHED)
    return task


def client_of(role: Role, task: Task) -> Client:
    return signed_in(MembershipFactory.create(project=task.project, role=role).user)


def test_the_page_offers_the_steps_that_can_be_retried(failed: Task) -> None:
    page = client_of(Role.MEMBER, failed).get(reverse("task", args=[failed.pk])).text
    offered = [reverse("task_retry", args=[failed.pk, position]) in page for position in (1, 2, 3)]
    assert offered == [True, True, False]
    assert page.count('value="before"') == 1, "only where it is known what the files were"
    seen = client_of(Role.VIEWER, failed).get(reverse("task", args=[failed.pk])).text
    assert "Retry from here" not in seen and "change-threshold" not in seen


def test_a_step_is_retried_with_one_confirmed_click(failed: Task) -> None:
    member = client_of(Role.MEMBER, failed)
    page = member.post(reverse("task_retry", args=[failed.pk, 1]), {"files": "before"}, follow=True)
    failed.refresh_from_db()
    assert (page.status_code, failed.phase, failed.reset_to) == (200, Phase.PENDING, "a" * 40)
    assert page.text.count("1 earlier run") == 2
    again = member.post(reverse("task_retry", args=[failed.pk, 1]), follow=True)
    assert "cancel it first" in again.text
    assert member.post(reverse("task_retry", args=[failed.pk, 9])).status_code == 404


def test_the_threshold_is_changed_on_the_page(failed: Task) -> None:
    member = client_of(Role.MEMBER, failed)
    address = reverse("task_threshold", args=[failed.pk])
    assert member.post(address, {"threshold": "5"}, follow=True).status_code == 200
    details = member.get(reverse("task_details", args=[failed.pk])).text
    assert "with the options laid out (5 of 5)" in details
    for nonsense in ("6", "-1", "high", "", "2.5", "\0", "9" * 5000):
        page = member.post(address, {"threshold": nonsense}, follow=True)
        assert "the threshold must be a whole number from 0 to 5" in page.text
    failed.refresh_from_db()
    assert failed.threshold == 5
    assert client_of(Role.VIEWER, failed).post(address, {"threshold": "high"}).status_code == 403


def test_the_timeline_says_what_failed_what_was_waited_for_and_where_it_is_in_the_log(db: None) -> None:
    asked = timezone.now() - timedelta(minutes=30)
    task = TaskFactory.create(phase=Phase.FAILED, started_at=asked, paused_seconds=1793)
    first = RunFactory.create(step=task.steps.get(position=1), outcome=Outcome.ASKED, ended_at=asked)
    Run.objects.filter(pk=first.pk).update(started_at=asked - timedelta(minutes=1))
    for target, seconds in ((Phase.WAITING_FOR_INPUT, 7), (Phase.PENDING, 1500), (Phase.RUNNING, 1800)):
        moved = Transition.objects.create(task=task, source=Phase.RUNNING, target=target)
        Transition.objects.filter(pk=moved.pk).update(at=asked + timedelta(seconds=seconds))
    QuestionFactory.create(task=task, run=first)
    report = {
        "check": "make test",
        "problem": "`make test` failed with exit 2.",
        "passed": False,
        "output": "\n".join(f"line {n}" for n in range(50)),
    }
    second = RunFactory.create(step=first.step, number=2, outcome=Outcome.FINISHED, checks=[report])
    page = client_of(Role.VIEWER, task).get(reverse("task_timeline", args=[task.pk])).text
    assert "waited 29 min 53 s for an answer" in page
    details = client_of(Role.VIEWER, task).get(reverse("task_details", args=[task.pk])).text
    assert "29 min 53 s" in details, "the details of the task say the same"
    assert "<code>make test</code> failed with exit 2." in page
    assert "check failed" in page and "line 49" in page and "line 12\n" not in page
    for run in (first, second):
        assert f"{reverse('task_log', args=[task.pk])}?run={run.pk}" in page


# ---- in the terminal ----


@pytest.mark.django_db
def test_a_task_is_retried_from_a_step_by_command(manage: Manage, failed: Task) -> None:
    MembershipFactory.create(project=failed.project, user__username="ann")
    code, out, _ = manage("retry", failed.pk, "--from", "implement", "--queue", "--as", "ann")
    failed.refresh_from_db()
    assert (code, failed.phase) == (0, Phase.PENDING) and "pending" in out
    for words, message in (
        (("--from", "nonsense"), "it has plan, implement, review"),
        (("--from", "implement"), "cancel it first"),
        (("--files-before",), "--files-before needs --from STEP"),
    ):
        code, _, said = manage("retry", failed.pk, *words, "--queue", "--as", "ann")
        assert code in (1, 2) and message in " ".join(said.split())


def test_what_a_dead_run_of_an_earlier_attempt_asked_is_not_asked(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: nobody would get the answer. The worker died after the question, and the step was retried."""
    task = runner.task(lambda prompt: [Turn("I ask.", (ask("Red?"),)), say("Painted.")])

    class Died(BaseException):
        pass

    def die(code: int) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(crashpoints, "_armed", "ask-recorded")
        patch.setattr(crashpoints, "os", SimpleNamespace(_exit=die))
        with pytest.raises(Died):
            runner.advance(task)
    cancel_task(task, by=acting(runner.user))
    retry_from(task, step(task), by=acting(runner.user))
    runner.agent = type(runner.fake)(lambda prompt: [say("Painted at once.")])
    assert runner.advance(task).phase == Phase.DONE
    assert not task.questions.exists()
    first, second = runs(task)
    assert (first.outcome, second.outcome) == (Outcome.CRASHED, Outcome.FINISHED)
