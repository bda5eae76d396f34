"""What tasks that agents write into a sequence may do, and how many there may be (P10, R4)."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings
from django.urls import reverse

from tasks_app.core.errors import BadInput, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.engine.stopping import never
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.models import AuditEntry, Notice, Sequence
from tasks_app.notifications.notices import create_notifications
from tasks_app.services import sequences
from tasks_app.services.projects.projects import add_project
from tasks_app.services.sequences import (
    create_sequence,
    faults_of_new_files,
    more_open,
    resume_sequence,
    task_waiting_for_permission,
)
from tasks_app.services.tasks import plan_task
from tests import machine
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.fake_script import Act, End, Turn, say, write
from tests.integration.git_repository import GitRepository
from tests.integration.test_engine_sequences import FOLDER, FakeAgents, task_text
from tests.people import acting

pytestmark = pytest.mark.django_db

PIPELINES = """\
defaultPipeline: closed
pipelines:
  closed:
    - {name: do, command: self, network: none, retry: 1}
  open:
    - {name: do, command: self, network: full}
"""


@pytest.fixture
def repository(tmp_path: Any) -> GitRepository:
    first = {f"{FOLDER}/01-first.md": task_text("first"), "cat-herder.yaml": PIPELINES}
    return GitRepository.make(tmp_path / "shop", **first)


@pytest.fixture
def agents(repository: GitRepository, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> FakeAgents:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path / "data")
    ann = UserFactory.create(username="ann", is_superuser=True)
    made = FakeAgents(add_project("shop", str(repository.path), by=ann), ann)
    made.context = WorkerContext(made.agent, machine.sandbox(tmp_path / "data"), never)
    return made


def writes(name: str, text: str) -> Act:
    return Turn("I add a task.", (write(f"{FOLDER}/{name}", text),))


def with_front_matter(front_matter: str, word: str = "new") -> str:
    return f"---\n{front_matter}\n---\n{task_text(word)}"


@pytest.fixture
def waiting(agents: FakeAgents) -> Sequence:
    """A sequence whose first agent has no network and wrote a task that has."""
    agents.acts["first"] = [writes("02-out.md", with_front_matter("pipeline: open")), say("Done.")]
    return agents.start()


@pytest.mark.bubblewrap
def test_an_agent_cannot_give_the_next_task_a_network(agents: FakeAgents, waiting: Sequence) -> None:
    """The attack: the next task began with the network, and the secret was outside."""
    assert agents.phases() == {"01-first.md": Phase.DONE}
    assert waiting.phase == Phase.FAILED
    assert "02-out.md waits for your permission" in waiting.failure
    assert "network full instead of none" in waiting.failure
    upcoming = task_waiting_for_permission(waiting)
    assert upcoming is not None and upcoming.more_open == ("network full instead of none in step “do”",)
    for key in ("", "1", upcoming.allow_key[:-1]):
        with pytest.raises(BadInput, match="waits for your permission"):
            resume_sequence(waiting, by=acting(agents.person), allow=key)
    assert agents.work().phase == Phase.FAILED and len(agents.tasks) == 1

    resume_sequence(waiting, by=acting(agents.person), allow=upcoming.allow_key)
    assert agents.work().phase == Phase.DONE
    assert agents.tasks[1].pipeline == "open"
    audit = AuditEntry.objects.filter(action="sequence_went_on").latest("pk")
    assert audit.detail["allowed"] == list(upcoming.more_open)


@pytest.mark.bubblewrap
def test_what_is_allowed_is_the_text_that_was_seen(agents: FakeAgents, waiting: Sequence) -> None:
    upcoming = task_waiting_for_permission(waiting)
    assert upcoming is not None
    changed = with_front_matter("pipeline: open", "another")
    (agents.workspace / FOLDER / "02-out.md").write_text(changed)
    with pytest.raises(BadInput, match="has changed since"):
        resume_sequence(waiting, by=acting(agents.person), allow=upcoming.allow_key)


@pytest.mark.bubblewrap
def test_people_see_that_it_waits_and_allow_it_on_the_page(agents: FakeAgents, waiting: Sequence) -> None:
    viewer = UserFactory.create()
    MembershipFactory.create(user=viewer, project=agents.project, role="viewer")
    upcoming = task_waiting_for_permission(waiting)
    assert upcoming is not None
    create_notifications()
    assert "02-out.md waits for your permission" in Notice.objects.get(user=agents.person).headline
    browser = signed_in(agents.person)
    assert "waits for your permission" in browser.get(reverse("tasks")).text
    url, resume = (reverse(name, args=[waiting.pk]) for name in ("sequence", "sequence_resume"))
    page = browser.get(url).text
    assert "network full instead of none" in page and upcoming.allow_key in page
    assert "do-resume" not in page
    assert upcoming.allow_key not in signed_in(viewer).get(url).text
    assert signed_in(viewer).post(resume, {"allow": upcoming.allow_key}).status_code == 403
    with pytest.raises(NotAllowed):
        resume_sequence(waiting, by=acting(viewer), allow=upcoming.allow_key)
    assert "waits for your permission" in browser.post(resume, follow=True).text
    browser.post(resume, {"allow": upcoming.allow_key})
    assert agents.work().phase == Phase.DONE


@pytest.mark.bubblewrap
def test_the_api_says_what_it_waits_for(agents: FakeAgents, waiting: Sequence) -> None:
    script, url = Script(agents.person), f"/sequences/{waiting.pk}"
    shown = script.get(url).json()
    assert shown["more_open"] == ["network full instead of none in step “do”"]
    assert script.post(f"{url}/resume").status_code == 400
    answer = script.post(f"{url}/resume", {"allow": shown["allow_key"]})
    assert (answer.status_code, answer.json()["allow_key"]) == (200, "")
    assert agents.work().phase == Phase.DONE


@pytest.mark.bubblewrap
def test_a_task_that_people_wrote_needs_no_further_permission_until_an_agent_changes_it(
    agents: FakeAgents, repository: GitRepository
) -> None:
    """Who starts the sequence starts it with the files that are there."""
    text = with_front_matter("pipeline: open", "second")
    repository.commit(**{f"{FOLDER}/02-out.md": text})
    assert agents.start().phase == Phase.DONE
    agents.acts["first"] = [writes("02-out.md", f"{text}\nSend it out.\n"), say("Done.")]
    assert "waits for your permission" in agents.start().failure


@pytest.mark.bubblewrap
def test_settings_that_an_agent_changes_are_not_those_of_later_tasks(agents: FakeAgents) -> None:
    """Later tasks have the settings of the commit with which the sequence began."""
    own = PIPELINES.replace("network: none", "network: full").replace("  open:", "  mine:")
    turn = Turn("I change the settings.", (write("cat-herder.yaml", own),))
    agents.acts["first"] = [turn, writes("02-next.md", task_text("next")), say("Done.")]
    assert agents.start().phase == Phase.DONE
    assert [task.steps.get().config["network"] for task in agents.tasks] == ["none", "none"]


@pytest.mark.bubblewrap
def test_p5_a_faulty_task_file_is_a_failed_check_of_the_agent_that_wrote_it(agents: FakeAgents) -> None:
    """It learns file, line and fault, and corrects it; before, the sequence failed after it had gone."""
    agents.acts["first"] = [
        writes("02-x.md", with_front_matter("pipeline: nowhere")),
        say("Done."),
        End(),
        writes("02-x.md", task_text("second")),
        say("Corrected."),
    ]
    assert agents.start().phase == Phase.DONE
    first, second = agents.tasks[0].steps.get().runs.order_by("number")
    (report,) = [one for one in first.checks or [] if not one["passed"]]
    assert f"{FOLDER}/02-x.md:2: there is no pipeline" in report["output"]
    assert f"{FOLDER}/02-x.md:2: there is no pipeline" in second.prompt
    assert list(agents.phases()) == ["01-first.md", "02-x.md"]


@pytest.mark.bubblewrap
def test_agents_add_no_more_tasks_than_they_may(agents: FakeAgents, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = settings.ENVIRONMENT.model_copy(update={"added_tasks": 2})
    monkeypatch.setattr(settings, "ENVIRONMENT", environment)
    agents.acts["first"] = [
        *(writes(f"0{number}-x.md", task_text(f"x{number}")) for number in (2, 3, 4)),
        say("Done."),
        say("Still done."),
    ]
    sequence = agents.start()
    assert sequence.phase == Phase.FAILED and len(agents.tasks) == 1
    assert f"{FOLDER}/04-x.md: agents may add 2 tasks to one sequence" in sequence.failure

    (agents.workspace / FOLDER / "04-x.md").unlink()
    resume_sequence(sequence, by=acting(agents.person))
    agents.acts["x3"] = [writes("05-x.md", task_text("x5")), say("Done."), say("Done.")]
    assert agents.work().phase == Phase.FAILED
    assert "05-x.md: agents may add 2 tasks" in agents.sequence.failure


@pytest.mark.parametrize(("many", "told"), [(3_000, 1), (20, 10)])
def test_an_agent_that_writes_many_task_files_is_told_of_a_few(
    agents: FakeAgents, monkeypatch: pytest.MonkeyPatch, many: int, told: int
) -> None:
    """Its worker reads no more of them than may be added, so that it is soon free for other tasks."""
    assert agents.start().phase == Phase.DONE
    for one in range(many):
        (agents.workspace / FOLDER / f"x{one:04}.md").write_text(with_front_matter(f"pipeline: no{one}"))
    plan = Mock(side_effect=plan_task)
    monkeypatch.setattr(sequences, "plan_task", plan)
    faults = faults_of_new_files(agents.sequence)
    assert len(faults) == told and plan.call_count <= 20
    assert ("agents may add 20 tasks" in faults[0]) == (many > 20)


BASE = """\
interactionThreshold: 3
askBefore: ["Bash(git push*)"]
limits: {maxCostUsd: 5}
pipelines:
  first:
    - name: plan
      command: implement
      model: haiku
      network: model
      fileAccess: {allowWrite: ["docs/**", PLAN.md]}
      allowedTools: [Read, "Bash(npm test:*)", Write]
      askBefore: [WebFetch]
      planApproval: true
"""
STEP = BASE.partition("    - name")[2]


@pytest.mark.parametrize(
    ("change", "front_matter", "said"),
    [
        (("", ""), "", []),
        (("", ""), "interactionThreshold: 4", []),
        (("network: model", "network: none"), "", []),
        (('["docs/**", PLAN.md]', "[docs/a.md]"), "", []),
        (('Read, "Bash(npm test:*)", Write', "Read"), "", []),
        (("askBefore: [WebFetch]", "askBefore: [WebFetch, Write]"), "", []),
        (("", ""), "interactionThreshold: 2", ["interaction threshold 2 instead of 3"]),
        (("network: model", "network: full"), "", ["network full instead of model in step “plan”"]),
        (("model: haiku", "model: opus"), "", ["model opus in step “plan”"]),
        (("      model: haiku\n", ""), "model: opus", ["model opus in step “plan”"]),
        (('["docs/**", PLAN.md]', '["docs/**", src/a.py]'), "", ["may write src/a.py in step “plan”"]),
        (('["docs/**", PLAN.md]', '["**"]'), "", ["may write ** in step “plan”"]),
        (
            ('      fileAccess: {allowWrite: ["docs/**", PLAN.md]}\n', ""),
            "",
            ["may write any file in step “plan”"],
        ),
        (("npm test:*", "npm:*"), "", ["may use Bash(npm:*) in step “plan”"]),
        (
            ('      allowedTools: [Read, "Bash(npm test:*)", Write]\n', ""),
            "",
            ["may use Bash, Edit, Glob, Grep, NotebookEdit, WebFetch in step “plan”"],
        ),
        (("      askBefore: [WebFetch]\n", ""), "", ["does not ask before WebFetch in step “plan”"]),
        (("      planApproval: true\n", ""), "", ["no plan that needs approval"]),
    ],
)
def test_r4_each_limit_counts(
    agents: FakeAgents,
    repository: GitRepository,
    change: tuple[str, str],
    front_matter: str,
    said: list[str],
) -> None:
    later = f"  later:\n    - name{STEP.replace(*change)}"
    repository.commit(
        **{
            "cat-herder.yaml": BASE + later,
            f"{FOLDER}/01-first.md": with_front_matter("pipeline: first"),
        }
    )
    sequence = create_sequence(agents.project, FOLDER, by=acting(agents.person))
    text = with_front_matter(f"pipeline: later\n{front_matter}")
    plan = plan_task(
        agents.project, text, base=sequence.base_commit, where="x.md", threshold=None, pipeline=None
    )
    assert more_open(plan, sequence.tasks.get()) == said


def test_r4_limits_that_were_raised_meanwhile_count(agents: FakeAgents, repository: GitRepository) -> None:
    """In the project's settings in the portal: the first task began with others."""
    repository.commit(**{"cat-herder.yaml": BASE, f"{FOLDER}/01-first.md": task_text("first")})
    sequence = create_sequence(agents.project, FOLDER, by=acting(agents.person))
    first = sequence.tasks.get()
    first.max_cost_usd, first.max_turns = 1, 10
    plan = plan_task(
        agents.project, first.text, base=sequence.base_commit, where="x.md", threshold=None, pipeline=None
    )
    assert more_open(plan, first) == [
        "maxCostUsd $5.00 instead of $1.00",
        "maxTurns without a limit instead of 10",
    ]
