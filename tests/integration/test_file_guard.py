"""P7: a step writes only what its globs allow, whichever way it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent.port import Ending
from tasks_app.core.phases import Phase
from tasks_app.git.clone import Workspace
from tasks_app.git.recording import Snapshot
from tasks_app.models import Channel, Run
from tasks_app.services.questions.answers import decide
from tests import machine
from tests.agents import real_bench
from tests.browser import signed_in
from tests.factories import UserFactory
from tests.fake_script import Act, Call, End, Turn, say, shell, write
from tests.people import acting
from tests.runner import Runner

GUARDED = """\
pipelines:
  default:
    - name: document
      command: self
      fileAccess: {allowWrite: ["docs/**", "*.md"]}
      retry: 1
"""


@pytest.mark.bubblewrap
def test_the_gate_stops_a_write_and_names_step_globs_and_file(tmp_path: Path) -> None:
    """With the real agent program: also through a path that leads out again."""
    with real_bench(tmp_path, machine.sandbox(tmp_path / "data")) as bench:
        order = bench.order("rehearsal: write-everywhere", step="document", allow_write=("docs/**",))
        result = bench.run(order)
        assert result.ending is Ending.FINISHED
        assert (bench.workspace / "docs" / "guide.md").read_text() == "allowed"
        assert not (bench.workspace / "src").exists()
        assert not (bench.workspace / "escape.py").exists()
        told = [text for _, text in bench.results()]
        assert any("“document”" in text and "docs/**" in text and "src/code.py" in text for text in told)
        assert any("escape.py" in text and "may write only" in text for text in told)


@pytest.mark.bubblewrap
def test_the_gate_guards_a_step_that_may_not_ask(tmp_path: Path) -> None:
    """H13: without a way to ask there is still a guard."""
    with real_bench(tmp_path, machine.sandbox(tmp_path / "data")) as bench:
        bench.may_ask = False
        bench.run(bench.order("rehearsal: write-everywhere", step="document", allow_write=("docs/**",)))
        assert not (bench.workspace / "src").exists()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("echo x > code.py", "code.py"),
        ("rm README.txt", "README.txt"),
        ("mkdir -p docs && git mv README.txt docs/README.txt", "README.txt"),
        ("ln -s /etc/passwd link", "link"),
        ("mkdir -p src/deep && echo x > src/deep/new.py", "src/deep/new.py"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_what_a_shell_command_did_shows_in_the_diff(runner: Runner, command: str, named: str) -> None:
    """New, deleted and renamed files and links; the agent is sent back with the list."""
    mend = "git reset -q && git checkout -q . && git clean -fdq"
    play: list[Act] = [
        Turn(calls=(shell(command),)),
        say("Done."),
        End(),
        Turn(calls=(shell(mend),)),
        say("Put back."),
    ]
    task = runner.task(play, project=runner.project(GUARDED, **{"README.txt": "hello\n"}))
    runner.advance(task)
    assert task.steps.get().phase == Phase.DONE
    first, second = Run.objects.order_by("number")
    assert first.checks
    report = first.checks[-1]
    assert not report["passed"]
    assert report["check"] == "file guard: only docs/**, *.md may change"
    assert named in report["output"].splitlines()
    assert named in second.prompt
    assert "“document”" in second.prompt


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("chmod +x README.txt", "README.txt (now executable)"),
        ("ln -sf /etc/hostname README.txt", "README.txt (was a file, is now a link to /etc/hostname)"),
    ],
)
def test_the_agent_is_told_what_was_changed_beside_lines(runner: Runner, command: str, told: str) -> None:
    play: list[Act] = [
        Turn(calls=(shell(command),)),
        say("Done."),
        End(),
        Turn(calls=(shell("git checkout README.txt"),)),
        say("Undone."),
    ]
    project = runner.project(GUARDED, **{"README.txt": "Read me.\n"})
    task = runner.advance(runner.task(play, project=project))
    assert task.phase == Phase.DONE, task.failure
    assert told in Run.objects.order_by("number").last().prompt  # type: ignore[union-attr]


def test_a_step_that_keeps_to_its_globs_passes(runner: Runner) -> None:
    task = runner.task(
        [Turn(calls=(shell("mkdir docs; echo x > docs/a.md"), write("NOTES.md", "y"))), say("Done.")],
        project=runner.project(GUARDED),
    )
    assert runner.advance(task).phase == Phase.DONE


@pytest.mark.django_db(transaction=True)
def test_a_step_that_never_keeps_to_its_globs_fails_with_the_list(runner: Runner) -> None:
    task = runner.task(
        [Turn(calls=(shell("echo x > code.py"),)), say("Done."), say("Still done.")],
        project=runner.project(GUARDED),
    )
    runner.advance(task)
    task.refresh_from_db()
    assert task.phase == Phase.FAILED
    assert "code.py" in task.failure
    told = [str(Run.objects.latest("pk").prompt), signed_in(UserFactory.create(is_superuser=True)).get(
        f"/tasks/{task.pk}/").text]  # fmt: skip
    assert ["Put them back" in text for text in told] == [True, False]  # people are not given orders


LITTERING = """\
pipelines:
  default:
    clarify: false
    steps:
    - {name: first, command: plan-task, check: {type: shell, command: "echo x > report.out"}}
    - name: second
      command: implement
      fileAccess: {allowWrite: ["*.txt"]}
"""
LITTERING_ITSELF = """\
pipelines:
  default:
    - name: only
      command: self
      fileAccess: {allowWrite: ["*.txt"]}
      check: {type: shell, command: "echo x > report.out; test -e made.txt"}
      retry: 1
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("check", "recordings"),
    [
        ("{type: none}", 1),
        ("{type: fileExists, path: notes.md}", 1),
        ("{type: shell, command: 'true'}", 2),
    ],
)
def test_the_files_are_recorded_again_only_if_a_check_ran_a_command(
    check: str, recordings: int, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, real = [], Workspace.snapshot

    def snapshot(self: Workspace, **how: Any) -> Snapshot:
        made.append(how["label"])
        return real(self, **how)

    monkeypatch.setattr(Workspace, "snapshot", snapshot)
    play = [Turn(calls=(write("notes.md", "x"),)), say("Done.")]
    task = runner.task(play, project=runner.project(f"{GUARDED}      check: {check}\n"))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert len(made) == recordings


@pytest.mark.django_db(transaction=True)
def test_a_step_is_not_blamed_for_what_an_earlier_check_left(runner: Runner) -> None:
    play = {"first": [say("Planned.")], "second": [Turn(calls=(write("made.txt", "x"),)), say("Done.")]}
    task = runner.task(play, project=runner.project(LITTERING))
    assert runner.advance(task).phase == Phase.DONE, task.failure


@pytest.mark.django_db(transaction=True)
def test_a_retry_is_not_blamed_for_what_its_own_check_left(runner: Runner) -> None:
    play: list[Act] = [say("Done."), End(), Turn(calls=(write("made.txt", "x"),)), say("Now.")]
    task = runner.task(play, project=runner.project(LITTERING_ITSELF))
    assert runner.advance(task).phase == Phase.DONE, task.failure


@pytest.mark.django_db(transaction=True)
def test_what_a_check_left_is_no_licence_to_change_it(runner: Runner) -> None:
    """The agent writes more into a file that only the check may have made."""
    meddle = Turn(calls=(write("made.txt", "x"), shell("echo mine >> report.out")))
    task = runner.task([say("Done."), End(), meddle, say("Now.")], project=runner.project(LITTERING_ITSELF))
    assert runner.advance(task).phase == Phase.FAILED
    assert "report.out" in task.failure


@pytest.mark.django_db(transaction=True)
def test_p7_names_that_look_like_patterns_are_matched_as_they_are(runner: Runner) -> None:
    """What the gate lets through, the guard lets through, and nothing else."""
    globs = 'allowWrite: ["app/[id]/**", "app/(group)/x.ts", "my notes/**"]'
    project = runner.project(GUARDED.replace('allowWrite: ["docs/**", "*.md"]', globs))
    script = (
        "mkdir -p 'app/[id]' 'app/(group)' 'my notes'; touch 'app/[id]/p' 'app/(group)/x.ts' 'my notes/a b'"
    )
    good = runner.advance(runner.task([Turn(calls=(shell(script),)), say("Done.")], project=project))
    assert good.phase == Phase.DONE
    script = "mkdir -p 'app/[x]' app/group; touch 'app/[x]/p' app/group/x.ts"
    bad = [Turn(calls=(shell(script),)), say("Done."), say("Still done.")]
    failed = runner.advance(runner.task(bad, project=project))
    assert failed.phase == Phase.FAILED
    assert "app/[x]/p\napp/group/x.ts" in failed.failure


ASKED = """\
askBefore: ["Write(CHANGES.md)"]
pipelines:
  default:
    - {name: change, command: self, retry: 1}
"""


@pytest.mark.django_db(transaction=True)
def test_a_command_that_writes_what_a_human_must_be_asked_about_is_sent_back(runner: Runner) -> None:
    """With `sed -i` nobody was asked, and all that was said was “all checks passed”."""
    play: list[Act] = [
        Turn(calls=(shell("echo 2.0 >> CHANGES.md; echo x > other.md"),)),
        say("Done."),
        End(),
        Turn(calls=(shell("git checkout -q CHANGES.md"),)),
        say("Put back."),
    ]
    task = runner.advance(runner.task(play, project=runner.project(ASKED, **{"CHANGES.md": "1.0\n"})))
    first, second = Run.objects.order_by("number")
    assert first.checks
    assert [(one["passed"], one["output"]) for one in first.checks] == [(False, "CHANGES.md")]
    assert "CHANGES.md" in second.prompt and task.phase == Phase.DONE


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("approved", "asked_about"),
    [
        (shell("echo guarded >> CHANGES.md"), True),
        (shell("echo guarded >> ./CHANGES.md"), True),
        (shell("echo guarded >> ../CHANGES.md"), False),
        (shell("mkdir docs; echo guarded >> docs/CHANGES.md; echo x >> CHANGE*"), False),
        (write("CHANGES.md", "guarded"), True),
        (write("NEWS.md", "guarded, see CHANGES.md"), False),
    ],
)
def test_what_a_human_approved_was_asked_about(runner: Runner, approved: Call, asked_about: bool) -> None:
    """That is a write of the file, or a command that names it; a text that mentions it is neither."""
    rules = '"Write(CHANGES.md)", "Write(NEWS.md)", "Bash(*guarded*)"'
    config = ASKED.replace('"Write(CHANGES.md)"', rules)
    play: list[Act] = [Turn(calls=(approved,)), Turn(calls=(shell("echo 2 >> CHANGES.md"),)), say("Done.")]
    project = runner.project(config.replace("retry: 1", "retry: 0"), **{"CHANGES.md": "1.0\n"})
    task = runner.advance(runner.task(play, project=project))
    (asked,) = task.questions.open()
    decide(asked, "approved", by=acting(runner.user), via=Channel.WEB)
    assert runner.advance(task).phase == (Phase.DONE if asked_about else Phase.FAILED)
