"""An update that conflicts goes to the agent's session, whose work becomes the merge commit (V6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.urls import reverse

from tasks_app.core.errors import BadInput, IllegalMove, NotAllowed, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.engine.workspaces.merging import _is_named, merged_into
from tasks_app.git import Repository, has_line_with_prefix
from tasks_app.models import Channel, Project, Publication, Reason, Review, Role, Task, paths
from tasks_app.services.bulk import retry_from
from tasks_app.services.difference import difference_of
from tasks_app.services.publishing.publications import publish
from tasks_app.services.publishing.pull_requests import Merge, let_agent_merge
from tests.browser import signed_in
from tests.crash.test_sweep import bury, dies_at
from tests.factories import MembershipFactory
from tests.fake_script import Act, End, Turn, say, shell, write
from tests.git_servers import bare_repository
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner, diff_of, file_in, runs, step

CONFIG = """\
pipelines:
  default:
    - name: do
      command: self
      retry: 1
      check: {type: shell, command: test -s paint.txt}
"""
FIRST = [Turn(calls=(write("paint.txt", "blue\n"), write("own.txt", "own\n"))), say("Painted.")]
RESOLVED = [Turn(calls=(write("paint.txt", "red and blue\n"),)), say("Both colours.")]
NOTHING = [say("Nothing to do.")]


def finished(runner: Runner, *later: Act) -> tuple[Task, GitRepository, str]:
    """A done task whose result conflicts with the newest commit of main; the agent's later runs follow."""
    task = runner.task([*FIRST, End(), *later], config=CONFIG)
    runner.advance(task)
    assert task.phase == Phase.DONE
    source = GitRepository(Path(task.project.source))
    target = source.commit(**{"paint.txt": "red\n", "news.txt": "new\n"})
    return task, source, target


def ask_to_merge(runner: Runner, task: Task) -> Review:
    return let_agent_merge(task, by=acting(runner.user), via=Channel.WEB)


def log_of(task: Task, *words: str) -> str:
    return GitRepository(paths.repository(task.project).path).git("log", *words, task.head_commit)


def test_v6_the_session_resolves_it_and_its_work_is_one_merge_commit(runner: Runner) -> None:
    task, _, target = finished(runner, *RESOLVED)
    before = task.head_commit
    review = ask_to_merge(runner, task)
    assert target in review.body and "* paint.txt" in review.body and "own.txt" not in review.body
    runner.advance(task)
    first, again = runs(task)
    assert task.phase == Phase.DONE, task.failure
    assert (task.phase, again.reason, again.resumed) == (Phase.DONE, Reason.REVIEW, True)
    assert again.session_id == first.session_id and target in again.prompt
    assert [report["passed"] for report in again.checks or []] == [True, True], "checked again"
    assert log_of(task, "-1", "--format=%P|%s") == f"{before} {target}|Merge branch 'main' into {task.branch}"
    assert "with conflicts" not in log_of(task, "--format=%s")
    assert file_in(task, "paint.txt").read_text() == "red and blue\n"
    assert file_in(task, "news.txt").read_text() == "new\n"


def test_the_changes_are_shown_from_what_was_merged(runner: Runner) -> None:
    task, _, target = finished(runner, *RESOLVED)
    ask_to_merge(runner, task)
    runner.advance(task)
    assert task.merged_commit == target
    difference = difference_of(task)
    assert difference is not None
    patch = difference.diff()
    assert "own.txt" in patch and "+red and blue" in patch and "news.txt" not in patch
    assert "news.txt" in diff_of(task), "the commits that started the task do not have it"


def test_the_agent_finds_the_markers_of_both_sides(runner: Runner) -> None:
    look = [Turn(calls=(shell("cp paint.txt seen.txt"), write("paint.txt", "red and blue\n"))), say("Done.")]
    task, _, target = finished(runner, *look)
    before = task.head_commit
    ask_to_merge(runner, task)
    runner.advance(task)
    seen = file_in(task, "seen.txt").read_text()
    assert seen == f"<<<<<<< {before}\nblue\n=======\nred\n>>>>>>> {target}\n"


def test_markers_that_are_left_are_a_failed_check(runner: Runner) -> None:
    task, _, target = finished(runner, *NOTHING, End(), *RESOLVED)
    ask_to_merge(runner, task)
    runner.advance(task)
    _first, idle, again = runs(task)
    assert [report["passed"] for report in idle.checks or []] == [False]
    assert again.reason == Reason.CHECK_FAILED and "paint.txt" in again.prompt
    assert task.phase == Phase.DONE and log_of(task, "-1", "--format=%P").endswith(target)
    assert "with conflicts" not in log_of(task, "--format=%s")


def test_an_agent_that_resolves_nothing_fails_and_nothing_is_published(runner: Runner) -> None:
    task, _, _ = finished(runner, *NOTHING, End(), *NOTHING)
    ask_to_merge(runner, task)
    runner.advance(task)
    assert task.phase == Phase.FAILED and "conflicts that are not resolved" in task.failure
    with pytest.raises(IllegalMove, match="done"):
        publish(task, by=acting(runner.user))


@pytest.mark.long
@pytest.mark.parametrize("size", [2_000_000, 18_000_000])
def test_markers_in_a_large_file_are_found(runner: Runner, size: int) -> None:
    """git writes markers into files of any size, also above `core.bigFileThreshold`."""
    paint = f"yes {{}} | head -c {size} > paint.txt"
    first = [Turn(calls=(shell(paint.format("blue")),)), say("Painted.")]
    task = runner.task([*first, End(), *NOTHING, End(), *NOTHING], config=CONFIG)
    runner.advance(task)
    GitRepository(Path(task.project.source)).commit(**{"paint.txt": "red\n" * (size // 4)})
    ask_to_merge(runner, task)
    runner.advance(task)
    assert task.phase == Phase.FAILED and "conflicts that are not resolved" in task.failure


def with_picture(runner: Runner, *later: Act) -> tuple[Task, GitRepository, str]:
    """As `finished`, but only a binary file conflicts."""
    first = Turn(calls=(write("paint.txt", "blue\n"), shell("printf 'blue\\0' > logo.png")))
    task = runner.task([first, say("I drew logo.png."), End(), *later], config=CONFIG)
    runner.advance(task)
    source = GitRepository(Path(task.project.source))
    return task, source, source.commit(**{"logo.png": "red\0"})


def test_a_binary_file_that_is_left_alone_counts_if_the_agent_says_so(runner: Runner) -> None:
    """It has no markers. What the agent said before the merge is no decision."""
    keeps = say("logo.png is right as it is: the blue one.")
    task, _, target = with_picture(runner, *NOTHING, End(), keeps)
    before = task.head_commit
    review = ask_to_merge(runner, task)
    assert review.body.count("* logo.png") == 2 and "have no markers" in review.body
    runner.advance(task)
    _first, silent, again = runs(task)
    assert [report["passed"] for report in silent.checks or []] == [False]
    assert again.reason == Reason.CHECK_FAILED and "* logo.png" in again.prompt
    assert task.phase == Phase.DONE, task.failure
    assert log_of(task, "-1", "--format=%P") == f"{before} {target}"


@pytest.mark.long
@pytest.mark.parametrize("how", [r"printf 'red\0' > logo.png", "rm logo.png", "echo both > logo.png"])
def test_a_binary_file_that_is_changed_or_deleted_is_resolved(runner: Runner, how: str) -> None:
    task, _, target = with_picture(runner, Turn(calls=(shell(how),)), say("Done."))
    ask_to_merge(runner, task)
    runner.advance(task)
    assert task.phase == Phase.DONE, task.failure
    assert log_of(task, "-1", "--format=%P").endswith(target)


@pytest.mark.long
def test_a_file_that_one_side_deleted_is_kept_if_the_agent_says_so(runner: Runner) -> None:
    first = Turn(calls=(write("paint.txt", "blue\n"), write("old.txt", "older\n")))
    acts: list[Act] = [first, say("Painted."), End(), say("I keep `old.txt`.")]
    task = runner.task(acts, project=runner.project(CONFIG, **{"old.txt": "old\n"}))
    runner.advance(task)
    source = GitRepository(Path(task.project.source))
    source.git("rm", "--quiet", "old.txt")
    source.commit(**{"news.txt": "new\n"})
    ask_to_merge(runner, task)
    runner.advance(task)
    assert (task.phase, file_in(task, "old.txt").read_text()) == (Phase.DONE, "older\n"), task.failure


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("I keep `a/b.png`.", True), ("a/b.png stays", True), ("Kept: a/b.png", True), ("a/b.png.", True),
        ("I keep x/a/b.png.", False), ("a/b.png.bak", False), ("a/b.pngs", False), ("aXb.png", False),
        ("b.png", False), ("", False),
    ],
)  # fmt: skip
def test_a_path_is_named_by_itself(text: str, named: bool) -> None:
    assert _is_named("a/b.png", text) == named


def test_a_path_is_named_as_it_was_told() -> None:
    assert _is_named("two  blanks\n.png", "I keep `two blanks .png`."), "in one line, with single blanks"
    assert _is_named("a b.png", "I keep a\nb.png.")


@pytest.mark.long
@pytest.mark.parametrize("resolved", [True, False])
def test_markers_in_a_file_whose_name_is_not_utf_8_are_found(runner: Runner, resolved: bool) -> None:
    in_latin_1 = "$(printf 'caf\\351.txt')"
    first = Turn(calls=(write("paint.txt", "x"), shell(f"echo blue > {in_latin_1}")))
    later = Turn(calls=(shell(f"echo both > {in_latin_1}"),)) if resolved else say("Nothing to do.")
    end = [say("Done.")] if resolved else []
    task = runner.task([first, say("Painted."), End(), later, *end, End(), *NOTHING], config=CONFIG)
    runner.advance(task)
    GitRepository(Path(task.project.source)).commit(**{"caf\udce9.txt": "red\n"})
    ask_to_merge(runner, task)
    runner.advance(task)
    assert task.phase == (Phase.DONE if resolved else Phase.FAILED), task.failure
    assert resolved or "conflicts that are not resolved" in task.failure


def test_a_file_that_cannot_be_read_does_not_count_as_resolved(tmp_path: Path) -> None:
    work = GitRepository.make(tmp_path / "work", **{"paint.txt": "red\n"})
    commit, blob = work.git("rev-parse", "HEAD"), work.git("rev-parse", "HEAD:paint.txt")
    repository = Repository(work.path / ".git", str(work.path), name="shop")
    merge = Merge(target=commit, onto=commit, started=commit, files=["paint.txt"])
    assert merge.files_with_markers(repository, commit) == []
    (work.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(WorkspaceError):
        merge.files_with_markers(repository, commit)


def test_a_marker_is_found_where_two_pieces_of_the_file_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = GitRepository.make(tmp_path / "work", a="some\n<<<<<<< one\n", b="some <<<<<<< one\n")
    repository = Repository(work.path / ".git", str(work.path), name="shop")
    for size in range(1, 20):
        monkeypatch.setattr("tasks_app.git.program._PIECE", size)
        found = [
            has_line_with_prefix(repository, work.git("rev-parse", f"HEAD:{name}"), ["<<<<<<< one", ">>"])
            for name in "ab"
        ]
        assert found == [True, False], size


def test_the_agent_may_commit_itself(runner: Runner) -> None:
    commit = Turn(calls=(write("paint.txt", "both\n"), shell("git add -A && git commit -qm Resolved")))
    task, _, target = finished(runner, commit, say("Committed."))
    before = task.head_commit
    ask_to_merge(runner, task)
    runner.advance(task)
    assert log_of(task, "-1", "--format=%P") == f"{before} {target}"


@pytest.mark.long
def test_published_afterwards_it_is_up_to_date(runner: Runner) -> None:
    task, source, target = finished(runner, *RESOLVED)
    remote = GitRepository(bare_repository(runner.folder / "remote.git"))
    source.git("push", "--quiet", str(remote.path), "HEAD:main")
    Project.objects.update(publish_url=str(remote.path))
    by = acting(runner.user)

    def publish_updated() -> Publication:
        publication = publish(task, by=by, update=True)
        carry_out(publication.pk)
        publication.refresh_from_db()
        return publication

    refused = publish_updated()
    assert (refused.state, refused.conflicts) == ("refused", ["paint.txt"])
    ask_to_merge(runner, task)
    runner.advance(task)
    published = publish_updated()
    assert (published.state, published.published_commit) == ("pushed", task.head_commit)
    assert remote.git("merge-base", task.branch, "main") == target
    assert remote.git("show", f"{task.branch}:paint.txt") == "red and blue"


@pytest.mark.long
def test_a_second_merge_follows_the_first(runner: Runner) -> None:
    more = [Turn(calls=(write("paint.txt", "all\n"),)), say("All.")]
    task, source, _first = finished(runner, *RESOLVED, End(), *more)
    ask_to_merge(runner, task)
    runner.advance(task)
    between = task.head_commit
    second = source.commit(**{"paint.txt": "green\n"})
    ask_to_merge(runner, task)
    runner.advance(task)
    assert (task.phase, task.merged_commit) == (Phase.DONE, second)
    assert log_of(task, "-1", "--format=%P") == f"{between} {second}"


@pytest.mark.long
def test_files_put_back_to_before_the_merge_are_compared_with_the_beginning(runner: Runner) -> None:
    task, _, _ = finished(runner, *RESOLVED)
    ask_to_merge(runner, task)
    runner.advance(task)
    assert task.merged_commit
    task.steps.update(base_commit=task.base_commit)
    runner.agent.script = lambda prompt: FIRST  # type: ignore[attr-defined]
    retry_from(task, step(task), by=acting(runner.user), put_back=True)
    runner.advance(task)
    assert (task.phase, task.merged_commit) == (Phase.DONE, "")


@pytest.mark.long
@pytest.mark.parametrize("point", ["claimed", "run-opened", "agent-ended", "work-recorded"])
def test_r2_a_worker_that_dies_meanwhile(runner: Runner, point: str) -> None:
    task, _, target = finished(runner, *RESOLVED)
    before = task.head_commit
    ask_to_merge(runner, task)
    assert dies_at(point, lambda: runner.advance(task)) == 137
    bury(task)
    runner.advance(task)
    assert task.phase == Phase.DONE
    assert log_of(task, "-1", "--format=%P") == f"{before} {target}"


# What is refused.


def test_without_a_conflict_there_is_nothing_for_the_agent(runner: Runner) -> None:
    task = runner.task(FIRST, config=CONFIG)
    runner.advance(task)
    GitRepository(Path(task.project.source)).commit(**{"news.txt": "new\n"})
    with pytest.raises(BadInput, match="without the agent"):
        ask_to_merge(runner, task)
    assert not Review.objects.exists() and not Task.objects.get().reset_to


def test_only_a_done_task(runner: Runner) -> None:
    finished(runner)
    Task.objects.update(phase=Phase.FAILED)
    with pytest.raises(IllegalMove, match="not done"):
        ask_to_merge(runner, Task.objects.get())


def test_a_viewer_may_not(runner: Runner) -> None:
    task, _, _ = finished(runner)
    viewer = MembershipFactory.create(project=task.project, role=Role.VIEWER).user
    with pytest.raises(NotAllowed):
        let_agent_merge(task, by=acting(viewer), via=Channel.WEB)


def test_asked_twice_it_is_resumed_once(runner: Runner) -> None:
    task, _, _ = finished(runner, *RESOLVED)
    ask_to_merge(runner, task)
    with pytest.raises(IllegalMove):
        ask_to_merge(runner, task)
    assert Review.objects.count() == 1


# The page, the API and the terminal.


def test_the_page_offers_it_after_a_conflict(runner: Runner) -> None:
    task, _, _ = finished(runner, *RESOLVED)
    url, browser = reverse("task_merge", args=[task.pk]), signed_in(runner.user)
    page = reverse("task", args=[task.pk])
    assert url not in browser.get(page).content.decode()
    publication = publish(task, by=acting(runner.user), update=True)
    carry_out(publication.pk)
    assert f'action="{url}"' in browser.get(page).content.decode()
    assert browser.post(url).status_code == 302
    task.refresh_from_db()
    assert (task.phase, Review.objects.get().via) == (Phase.PENDING, Channel.WEB)
    assert url not in browser.get(page).content.decode()


def test_the_api_asks_for_it(runner: Runner) -> None:
    task, _, target = finished(runner)
    browser = signed_in(runner.user)
    made = browser.post(f"/api/v1/tasks/{task.pk}/merge", {}, "application/json")
    assert made.status_code == 201 and target in made.json()["body"]
    again = browser.post(f"/api/v1/tasks/{task.pk}/merge", {}, "application/json")
    assert again.status_code == 409


@pytest.mark.long
def test_a_commit_that_cannot_be_read_is_no_merge_that_is_missing(runner: Runner) -> None:
    """Otherwise the check for markers would be left out."""
    task, _, _ = finished(runner, *RESOLVED)
    ask_to_merge(runner, task)
    runner.advance(task)
    assert merged_into(task, task.head_commit)
    with pytest.raises(WorkspaceError):
        merged_into(task, "1" * 40)


def test_the_terminal_takes_no_option_of_a_publication_with_it(runner: Runner, manage: Manage) -> None:
    task, _, _target = finished(runner)
    code, _, err = manage("publish", task.pk, "--let-agent-merge", "--squash")
    assert code == 2 and "--let-agent-merge" in err and not Review.objects.exists()


@pytest.mark.long
def test_the_terminal_prints_the_request_as_json(runner: Runner, manage: Manage) -> None:
    task, _, target = finished(runner)
    code, out, _ = manage("publish", task.pk, "--let-agent-merge", "--json")
    printed = json.loads(out)
    assert code == 0 and printed["verdict"] == "request_changes" and target in printed["body"]


def test_the_terminal_asks_for_it(runner: Runner, manage: Manage) -> None:
    task, _, _target = finished(runner)
    code, out, _ = manage("publish", task.pk, "--let-agent-merge")
    assert code == 0 and "paint.txt" in out and not Publication.objects.exists()
    assert Review.objects.get().via == Channel.TERMINAL
    assert manage("publish", task.pk, "--let-agent-merge")[0] != 0


def test_v6_the_step_that_may_write_the_files_in_conflict_resolves_them(runner: Runner) -> None:
    """Not the last one, which may write documents only."""
    docs = "    - {name: docs, command: docs-update, fileAccess: {allowWrite: [README.md]}}\n"
    guarded = CONFIG.replace("command: self", "command: implement") + docs
    describes = [Turn(calls=(write("README.md", "Blue.\n"),)), say("Described.")]
    task = runner.task({"do": [*FIRST, End(), *RESOLVED], "docs": describes}, config=guarded)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    GitRepository(Path(task.project.source)).commit(**{"paint.txt": "red\n"})
    review = ask_to_merge(runner, task)
    review.refresh_from_db()
    assert review.step == step(task, "do")
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert file_in(task, "paint.txt").read_text() == "red and blue\n", "the step after it keeps that"
