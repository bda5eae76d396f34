"""A conflict of a sequence's result goes to the agent of its last task, whose result it is (V6, P10)."""

from __future__ import annotations

from collections.abc import Sequence as Acts
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.urls import reverse

from tasks_app.core.errors import IllegalMove, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.models import (
    Channel,
    Project,
    Publication,
    Reason,
    Review,
    ReviewVerdict,
    Role,
    Sequence,
    Task,
    paths,
)
from tasks_app.services.difference import difference_of
from tasks_app.services.publishing.publications import missing_approvals, publish
from tasks_app.services.publishing.pull_requests import let_agent_merge
from tasks_app.services.reviews import send_review
from tasks_app.services.sequences import create_sequence, start_sequence, task_to_publish, upcoming_files
from tests.browser import signed_in
from tests.crash.test_sweep import bury, dies_at
from tests.factories import MembershipFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, End, Turn, say, shell, write
from tests.git_servers import bare_repository
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner, file_in, runs

#: What is a matter of rows runs on both databases.
ROWS = pytest.mark.django_db(transaction=True)
CONFIG = """\
pipelines:
  default:
    - name: do
      command: self
      check: {type: shell, command: test -s paint.txt}
"""
FILES = {"tasks/01-prime.md": "# Prime it\n", "tasks/02-paint.md": "# Paint it\n"}
PRIMED: list[Act] = [
    Turn(calls=(write("primer.txt", "white\n"), write("paint.txt", "none\n"))),
    say("Primed."),
]
PAINTED: list[Act] = [Turn(calls=(write("paint.txt", "blue\n"),)), say("Painted.")]
RESOLVED: list[Act] = [Turn(calls=(write("paint.txt", "red and blue\n"),)), say("Both colours.")]


@dataclass
class Work:
    """A sequence of two tasks, both done, whose result conflicts with the newest commit of main."""

    runner: Runner
    sequence: Sequence
    source: GitRepository
    target: str = ""

    @property
    def tasks(self) -> list[Task]:
        return list(self.sequence.tasks.select_related("project").order_by("pk"))

    @property
    def last(self) -> Task:
        return task_to_publish(self.sequence)

    def work(self) -> None:
        while due := Task.objects.due().first():
            self.runner.advance(due)
        self.sequence.refresh_from_db()

    def ask_to_merge(self) -> Review:
        return let_agent_merge(self.last, by=acting(self.runner.user), via=Channel.WEB)

    def merge(self) -> None:
        self.ask_to_merge()
        self.work()

    def in_conflict(self, **files: str) -> None:
        self.target = self.source.commit(**{"paint.txt": "red\n", "news.txt": "new\n", **files})

    def publish_updated(self) -> Publication:
        publication = publish(self.last, by=acting(self.runner.user), update=True)
        carry_out(publication.pk)
        publication.refresh_from_db()
        return publication


def make(runner: Runner, *later: Act) -> Work:
    """The sequence before main has moved on; `later` are further runs of the last task's session."""
    project = runner.project(CONFIG, **FILES)
    acts: dict[str, Acts[Act]] = {"# Prime it": PRIMED, "# Paint it": [*PAINTED, End(), *later]}
    runner.agent = FakeAgent(lambda prompt: next(acts[word] for word in reversed(acts) if word in prompt))
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    made = Work(runner, sequence, GitRepository(Path(project.source)))
    start_sequence(sequence, by=acting(runner.user))
    made.work()
    assert made.sequence.phase == Phase.DONE, [task.failure for task in made.tasks]
    return made


def finished(runner: Runner, *later: Act) -> Work:
    made = make(runner, *later)
    made.in_conflict()
    return made


@ROWS
def test_v6_the_session_of_the_last_task_merges_and_its_result_is_that_of_the_sequence(
    runner: Runner,
) -> None:
    work = finished(runner, *RESOLVED)
    first, last = work.tasks
    review = work.ask_to_merge()
    assert (review.task, "* paint.txt" in review.body) == (last, True)
    work.sequence.refresh_from_db()
    assert work.sequence.phase == Phase.PENDING, "it follows its task"
    work.work()
    after_first, after_last = work.tasks
    assert work.sequence.phase == after_last.phase == Phase.DONE, after_last.failure
    assert work.sequence.head_commit == after_last.head_commit
    assert (after_first.head_commit, len(runs(first))) == (first.head_commit, 1)
    again = runs(last)[-1]
    assert (again.reason, again.resumed) == (Reason.REVIEW, True)
    assert [report["passed"] for report in again.checks or []] == [True, True], "checked again"
    own = GitRepository(paths.repository(last.project).path)
    assert own.git("log", "-1", "--format=%P", after_last.head_commit) == f"{last.head_commit} {work.target}"
    assert own.git("rev-parse", work.sequence.branch) == after_last.head_commit
    assert own.git("show", f"{after_last.head_commit}:paint.txt") == "red and blue"


def test_the_changes_of_the_sequence_are_shown_from_what_was_merged(runner: Runner) -> None:
    work = finished(runner, *RESOLVED)
    work.merge()
    for changed in (work.sequence, work.last):
        difference = difference_of(changed)
        assert difference is not None
        patch = difference.diff()
        assert "primer.txt" in patch and "+red and blue" in patch and "news.txt" not in patch
    browser, (first, last) = signed_in(runner.user), work.tasks
    shown = [
        browser.get(f"{reverse('task_diff', args=[one.pk])}?from=sequence").text for one in (first, last)
    ]
    assert all("primer.txt" in page and "news.txt" not in page for page in shown)


@ROWS
def test_task_files_that_the_merge_brings_are_not_begun(runner: Runner) -> None:
    work = make(runner, *RESOLVED)
    work.in_conflict(**{"tasks/03-later.md": "# Prime it\n", "tasks/04-caf\udce9.md": "# Prime it\n"})
    work.merge()
    assert work.sequence.phase == Phase.DONE and len(work.tasks) == 2
    assert file_in(work.last, "tasks/03-later.md").exists()
    assert upcoming_files(work.sequence) == ([], "")


def test_the_folder_may_be_gone_from_what_is_merged(runner: Runner) -> None:
    work = make(runner, *RESOLVED)
    work.source.git("rm", "--quiet", "-r", "tasks")
    work.in_conflict()
    work.merge()
    assert (work.sequence.phase, work.sequence.failure) == (Phase.DONE, "")
    assert not file_in(work.last, "tasks").exists()


def test_a_task_that_the_agent_writes_afterwards_continues_on_the_merge(runner: Runner) -> None:
    more = [Turn(calls=(write("tasks/03-prime.md", "# Prime it\n"),)), say("One more task.")]
    work = finished(runner, *RESOLVED, End(), *more)
    work.merge()
    merged = work.last.head_commit
    verdict = ReviewVerdict.REQUEST_CHANGES
    send_review(work.last, verdict, by=acting(runner.user), via=Channel.WEB, body="Prime it once more.")
    work.work()
    assert [task.phase for task in work.tasks] == [Phase.DONE] * 3, [task.failure for task in work.tasks]
    own = GitRepository(paths.repository(work.last.project).path)
    own.git("merge-base", "--is-ancestor", merged, work.last.head_commit)
    mine, whole = difference_of(work.last), difference_of(work.sequence)
    assert mine and whole
    assert "paint.txt" in mine.diff() and "03-prime.md" not in mine.diff()
    assert "primer.txt" in whole.diff() and "news.txt" not in whole.diff()


def test_published_afterwards_it_is_up_to_date(runner: Runner) -> None:
    work = finished(runner, *RESOLVED)
    remote = GitRepository(bare_repository(runner.folder / "remote.git"))
    work.source.git("push", "--quiet", str(remote.path), "HEAD:main")
    Project.objects.update(publish_url=str(remote.path))
    assert (work.publish_updated().state, Publication.objects.get().conflicts) == ("refused", ["paint.txt"])
    work.merge()
    published = work.publish_updated()
    assert (published.state, published.published_commit) == ("pushed", work.sequence.head_commit)
    assert remote.git("merge-base", work.sequence.branch, "main") == work.target


@ROWS
def test_v5_an_approval_of_the_result_before_does_not_count(runner: Runner) -> None:
    work = finished(runner, *RESOLVED)
    Project.objects.update(required_approvals=1)
    bob = acting(MembershipFactory.create(project=work.sequence.project).user)
    send_review(work.last, ReviewVerdict.APPROVE, by=bob, via=Channel.WEB)
    assert not missing_approvals(work.last, work.last.head_commit)
    work.merge()
    assert "0 of 1" in missing_approvals(work.last, work.last.head_commit)


@pytest.mark.parametrize("point", ["claimed", "work-recorded"])
@pytest.mark.both
def test_r2_a_worker_that_dies_meanwhile(runner: Runner, point: str) -> None:
    work = finished(runner, *RESOLVED)
    before = work.last.head_commit
    work.ask_to_merge()
    assert dies_at(point, lambda: runner.advance(work.last)) == 137
    bury(work.last)
    work.work()
    assert work.sequence.phase == Phase.DONE
    own = GitRepository(paths.repository(work.last.project).path)
    assert own.git("log", "-1", "--format=%P", work.sequence.head_commit) == f"{before} {work.target}"


def test_if_it_fails_the_sequence_fails_with_it(runner: Runner) -> None:
    nothing: list[Act] = [Turn(calls=(shell("true"),)), say("Nothing to do.")]
    work = finished(runner, *nothing)
    work.merge()
    assert work.sequence.phase == Phase.FAILED and "conflicts that are not resolved" in work.sequence.failure


# What is refused.


def test_an_earlier_task_does_not_merge(runner: Runner) -> None:
    work = finished(runner)
    with pytest.raises(IllegalMove, match="followed by another task"):
        let_agent_merge(work.tasks[0], by=acting(runner.user), via=Channel.WEB)


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.CANCELLED, Phase.FAILED])
def test_a_task_that_is_not_done_does_not_merge(runner: Runner, phase: Phase) -> None:
    work = finished(runner)
    Task.objects.filter(pk=work.last.pk).update(phase=phase)
    Sequence.objects.update(phase=phase)
    with pytest.raises(IllegalMove, match=f"Task .* is {phase} and .*not done"):
        work.ask_to_merge()


def test_a_sequence_that_failed_at_its_next_file_does_not_merge(runner: Runner) -> None:
    work = finished(runner)
    Sequence.objects.update(phase=Phase.FAILED)
    with pytest.raises(IllegalMove, match=r"Sequence “tasks” is failed .*not done"):
        work.ask_to_merge()
    assert not Review.objects.exists()


def test_a_viewer_may_not(runner: Runner) -> None:
    work = finished(runner)
    viewer = MembershipFactory.create(project=work.sequence.project, role=Role.VIEWER).user
    with pytest.raises(NotAllowed):
        let_agent_merge(work.last, by=acting(viewer), via=Channel.WEB)


@ROWS
@pytest.mark.both
def test_asked_twice_it_is_resumed_once(runner: Runner) -> None:
    work = finished(runner, *RESOLVED)
    work.ask_to_merge()
    with pytest.raises(IllegalMove):
        work.ask_to_merge()
    assert Review.objects.count() == 1


# The pages, the API and the terminal.


def test_the_page_of_the_sequence_offers_it_after_a_conflict(runner: Runner) -> None:
    work = finished(runner, *RESOLVED)
    url, page = (reverse(name, args=[work.sequence.pk]) for name in ("sequence_merge", "sequence"))
    browser = signed_in(runner.user)
    viewer = signed_in(MembershipFactory.create(project=work.sequence.project, role=Role.VIEWER).user)
    assert url not in browser.get(page).text
    work.publish_updated()
    assert f'action="{url}"' in browser.get(page).text and url not in viewer.get(page).text
    first, last = (browser.get(reverse("task", args=[task.pk])).text for task in work.tasks)
    assert "do-merge" not in first and reverse("task_merge", args=[work.last.pk]) in last
    answered = [browser.post(url) for _ in range(2)]
    assert [(one.status_code, one["Location"]) for one in answered] == [(302, page)] * 2
    assert Review.objects.get().task == work.last
    assert url not in browser.get(page).text


def test_the_page_offers_nothing_while_the_sequence_is_not_done(runner: Runner) -> None:
    work = finished(runner)
    work.publish_updated()
    Sequence.objects.update(phase=Phase.FAILED)
    assert "do-merge" not in signed_in(runner.user).get(reverse("sequence", args=[work.sequence.pk])).text


@ROWS
def test_the_api_asks_for_it(runner: Runner) -> None:
    work = finished(runner)
    url, browser = f"/api/v1/sequences/{work.sequence.pk}/merge", signed_in(runner.user)
    made, again = (browser.post(url, {}, "application/json") for _ in range(2))
    assert made.status_code == 201 and work.target in made.json()["body"]
    assert again.status_code == 409 and Review.objects.get().via == Channel.API


def test_the_terminal_asks_for_it(runner: Runner, manage: Manage) -> None:
    work = finished(runner)
    code, out, _ = manage("publish", f"sequence:{work.sequence.pk}", "--let-agent-merge")
    assert code == 0 and f"Task {work.last.pk} resumes" in out and "paint.txt" in out
    assert Review.objects.get().via == Channel.TERMINAL and not Publication.objects.exists()
    assert manage("publish", f"sequence:{work.sequence.pk}", "--let-agent-merge")[0] != 0
