"""Every operation of the API is sent what its OpenAPI document allows, and what it does not (W5, R5).

The operations come from the document itself. All of them really act, on a project with a repository, in a
transaction that is undone after each request: so nothing is committed, and no worker is rung.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.utils import timezone
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.specs.openapi import checks

from tasks_app.api.app import document
from tasks_app.core.phases import Phase
from tasks_app.git import program
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    Calendar,
    Delivery,
    EventKind,
    Project,
    QuestionKind,
    Role,
    Scope,
    Sequence,
    Target,
    Task,
    paths,
)
from tasks_app.services.accounts import make_token
from tasks_app.services.projects.members import invite
from tasks_app.services.projects.projects import add_project
from tests.databases import undone
from tests.factories import (
    DecisionFactory,
    MemberGroupFactory,
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    ThreadFactory,
    UserFactory,
)
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import ONE_STEP

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.once(on="postgres"),  # the stricter of the two: about NUL, numbers, lengths
    # Logs are streamed for the portal's own server, which is asynchronous.
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume"),
]

#: Of each operation; the cases at the edges of its schemas, which are always the same, come on top.
EXAMPLES = 15
CONFIG = {
    "seed": 1,
    "suppress-health-check": ["all"],
    "generation": {
        "max-examples": EXAMPLES,
        "deterministic": True,
        "no-shrink": True,
        "database": "none",
        "with-security-parameters": False,
    },
    "phases": {"stateful": {"enabled": False}},
}
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.missing_required_header,
    checks.unsupported_method,
    checks.allow_header_conformance,
    # Left out: positive_data_acceptance, for what a schema allows may still be refused by the state that a
    # row is in (409), or not be there (404); use_after_free, ensure_resource_availability and
    # object_level_authorization, which judge series of requests, and each of ours is undone after it.
]
#: Sends two more requests, without a token and with a wrong one: until one was accepted.
AUTH_CHECK = checks.ignored_auth
DOCUMENT = json.loads(json.dumps(document()))
schema = schemathesis.openapi.from_dict(DOCUMENT, config=SchemathesisConfig.from_dict(CONFIG))
SETTINGS = schema.config.get_hypothesis_settings(apply_ci_profile=False)
METHODS = [one for path in DOCUMENT["paths"].values() for one in path.items()]
#: By tag. Those that delete are last: a folder that was removed does not come back.
OPERATIONS: dict[str, list[str]] = {}
for _, one in sorted(METHODS, key=lambda named: named[0] == "delete"):
    OPERATIONS.setdefault(one["tags"][0], []).append(one["operationId"])


@pytest.fixture(autouse=True)
def one_connection() -> Iterator[None]:
    """As Django's test client does: the end of a request is not the end of the test's transaction."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


@dataclass(frozen=True)
class Place:
    """Where requests go: with which token, and what is there, by the names that the API has for it.

    `special` is what is there for one operation, which needs another state than the rest.
    """

    headers: dict[str, str]
    known: dict[str, Any]
    special: dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("fuzzed") / "repository"
    files = {"cat-herder.yaml": ONE_STEP, "tasks/night/01-first.md": "# First\n"}
    return str(GitRepository.make(place, **files).path)


@pytest.fixture
def place(source: str, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    settings.DATA_DIR = tmp_path
    monkeypatch.setitem(program._FIXED, "GIT_ALLOW_PROTOCOL", "file")  # no source is sought in the network
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"api_rate": 1_000_000})
    user = UserFactory.create(username="ann", is_superuser=True)
    project = add_project("shop", source, by=user)
    # Somebody fetches already: another fetch would be a thread that does not see this transaction.
    Project.objects.update(fetching_since=timezone.now())
    question = QuestionFactory.create(task__project=project)
    task = question.task
    task.sequence = SequenceFactory.create(project=project, phase=task.phase, folder="tasks/night")
    task.save(update_fields=["sequence"])
    append_one(question.run, EventKind.TEXT, {"text": "hello"})
    other = MembershipFactory.create(project=project, user__username="bob").user
    invitation, _ = invite(project, "new@example.org", Role.VIEWER, by=acting(user))
    target = Target.objects.create(project=project, medium="webhook", name="hook", event_types=["done"])
    delivery = Delivery.objects.create(
        target=target, medium="webhook", event_type="failed", due_at=timezone.now()
    )
    ThreadFactory.create(task=task)
    Calendar.objects.create(user=user, source="example.org", encrypted_url="x")
    made = make_token("script", tuple(Scope), by=acting(user))
    known = {
        "project": project.name,
        "task_id": task.pk,
        "task": task.pk,
        "sequence_id": task.sequence_id,
        "sequence": task.sequence_id,
        "question_id": question.pk,
        "position": 1,
        "number": 1,
        "verdict": "comment",
        "kind": "output",
        "username": other.username,
        "invitation_id": invitation.pk,
        "target_id": target.pk,
        "delivery_id": delivery.pk,
        "url": "https://example.org/hook",
        "medium": "webhook",
        "time_zone": "Europe/Berlin",
        "projects": [project.name],
        "token_id": made.token.pk,
        "source": source,
        "branch": "main",
        "folder": "tasks/night",
        "path": "tasks/night/01-first.md",
        "answer": "Half up",
    }
    return Place({"Authorization": f"Bearer {made.secret}"}, known, _special(project))


def _special(project: Project) -> dict[str, dict[str, Any]]:
    step_failed, task_failed = {"task_id": _failed(project).pk}, {"task_id": _failed(project).pk}
    sequence = SequenceFactory.create(project=project, phase=Phase.FAILED)
    _failed(project, sequence)
    asked = {
        "question": "Allow this command?\n\n`git push`",
        "options": [{"label": "Approve"}, {"label": "Deny"}],
    }
    base = paths.repository(project).head("main")
    approval = QuestionFactory.create(task__project=project, kind=QuestionKind.APPROVAL, items=[asked])
    changed = TaskFactory.create(project=project, base_commit=base, head_commit=base)
    done = SequenceFactory.create(project=project, base_commit=base, head_commit=base)
    result = TaskFactory.create(project=project, phase=Phase.DONE, base_commit=base, head_commit="b" * 40)
    finished = SequenceFactory.create(project=project, phase=Phase.DONE, base_commit=base)
    TaskFactory.create(project=project, sequence=finished, phase=Phase.DONE, head_commit="b" * 40)
    decisions = [DecisionFactory.create(project=project).number for _ in range(5)]
    project.decisions.filter(number=decisions[4]).update(state="retired")
    MemberGroupFactory.create(project=project, name="payments")
    open_one = QuestionFactory.create(task__project=project)
    web = ProjectFactory.create(name="web-shop", source="https://git.example/shop.git")
    return {
        "publish_task": {"task_id": result.pk},
        "let_agent_merge": {"task_id": _conflicting(project).pk},
        "publish_sequence": {"sequence_id": finished.pk},
        "let_agent_merge_sequence": {"sequence_id": _conflicting_sequence(project).pk},
        "store_credential": {"project": web.name, "kind": "token", "secret": "glpat-1", "username": "robot"},
        "get_patch": {"task_id": changed.pk},
        "get_sequence_patch": {"sequence_id": done.pk},
        "add_project": {"project": "another-shop"},
        "delete_group": {"group": "payments"},
        "ask_somebody": {"question_id": open_one.pk, "to": "bob", "kind": "opinion"},
        "resume_task": task_failed,
        "create_review": {"task_id": changed.pk, "threads": [], "commit": ""},
        "retry_step": {**step_failed, "put_back": False},
        "resume_sequence": {"sequence_id": sequence.pk},
        "decide_question": {"question_id": approval.pk, "verdict": "approved"},
        "revise_decision": {"number": decisions[1]},
        "preview_decision_import": {"path": []},
        "change_working_hours": {"week": [{"begin": "09:00", "end": "18:00"}] * 7, "absences": []},
        "change_absence_calendar": {"content": ""},
        "import_decisions": {"paths": [], "decisions": None},
        "keep_decision": {"number": decisions[2]},
        "retire_decision": {"number": decisions[3]},
        "restore_decision": {"number": decisions[4]},
    }


def _conflicting(project: Project) -> Task:
    """A done task whose result conflicts with the newest commit of the source."""
    source, own = GitRepository(Path(project.source)), paths.repository(project).path
    base = source.git("rev-parse", "main")
    source.git("checkout", "--quiet", "--detach")
    head = source.commit(**{"clash.txt": "one\n"})
    source.git("push", "--quiet", str(own), "+HEAD:refs/heads/cat-herder/clash")
    source.git("checkout", "--quiet", "main")
    source.commit(**{"clash.txt": f"two, not {head}\n"})  # another content each time: the source is shared
    task = TaskFactory.create(project=project, phase=Phase.DONE, base_commit=base, head_commit=head)
    RunFactory.create(task=task)
    return task


def _conflicting_sequence(project: Project) -> Sequence:
    task = _conflicting(project)
    task.sequence = SequenceFactory.create(project=project, phase=Phase.DONE, base_commit=task.base_commit)
    task.save(update_fields=["sequence"])
    return task.sequence


def _failed(project: Project, sequence: Sequence | None = None) -> Task:
    task = TaskFactory.create(project=project, sequence=sequence, phase=Phase.FAILED, steps=("do",))
    RunFactory.create(task=task)
    task.steps.update(phase=Phase.FAILED)
    return task


@pytest.fixture
def application() -> None:
    schema.app = get_wsgi_application()


@pytest.mark.usefixtures("application")
@pytest.mark.parametrize("tag", OPERATIONS)
def test_operations_keep_what_their_document_promises(
    tag: str, place: Place, subtests: pytest.Subtests
) -> None:
    for name in OPERATIONS[tag]:
        with subtests.test(name):
            answered = _send_examples(name, place)
            assert min(answered) < 300, f"{name} never did what it is for: {sorted(answered)}"


def _send_examples(name: str, place: Place) -> set[int]:
    """Try an operation; return the status codes of its responses."""
    seen: set[int] = set()

    def sent(case: Case[Any]) -> None:
        _aim(case, place.known | place.special.get(name, {}))
        was_accepted = min(seen, default=500) < 300
        with undone():
            response = case.call_and_validate(
                headers=place.headers, checks=CHECKS if was_accepted else [*CHECKS, AUTH_CHECK]
            )
            seen.add(response.status_code)

    operation = schema.find_operation_by_id(name)
    config = HypothesisTestConfig(schema.config, list(HypothesisTestMode), SETTINGS)
    create_test(operation=operation, test_func=sent, config=config)()
    return seen


def _aim(case: Case[Any], known: dict[str, Any]) -> None:
    """Let three of four well-formed cases hit what is there."""
    if crc32(repr((case.path_parameters, case.query, case.body)).encode("utf-8", "replace")) % 4 == 0:
        return
    for location, values in (
        (ParameterLocation.PATH, case.path_parameters),
        (ParameterLocation.QUERY, case.query),
        (ParameterLocation.BODY, case.body),
    ):
        if not isinstance(values, dict) or (case.meta and case.meta.is_negative_at(location)):
            continue
        for name in known.keys() & values.keys():
            values[name] = known[name]
