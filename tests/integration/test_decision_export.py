"""Exporting decisions as files: the result of a task without an agent, which is then reviewed (D7)."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tasks_app.core.errors import IllegalMove, NotAllowed, WorkspaceError
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.models import (
    AuditEntry,
    Channel,
    Decision,
    DecisionScope,
    Project,
    ReviewVerdict,
    Role,
    Task,
    User,
    paths,
)
from tasks_app.notifications.notices import create_notifications
from tasks_app.services.decisions import changes
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.decisions.records import Export, export_decisions, import_decisions, preview_import
from tasks_app.services.projects.projects import add_project, fetch
from tasks_app.services.publishing.publications import publish
from tasks_app.services.publishing.pull_request_text import pull_request_body
from tasks_app.services.reviews import send_review
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.people import acting

pytestmark = pytest.mark.django_db

BY_HAND = "# 1. Use UTC\n\n## Status\n\nAccepted\n\n## Decision\n\nWe use UTC.\n"


@pytest.fixture
def ada() -> User:
    user: User = UserFactory.create(is_superuser=True, username="ada", first_name="Ada")
    return user


@pytest.fixture
def source(tmp_path: Path) -> GitRepository:
    return GitRepository.make(tmp_path / "shop", **{"README.md": "Shop\n", "src/a.py": "a = 1\n"})


@pytest.fixture
def shop(source: GitRepository, ada: User) -> Project:
    return add_project("shop", str(source.path), by=ada)


def decide(project: Project, ada: User, statement: str, **more: Any) -> Decision:
    return changes.make_decision(project, DecisionContent(statement, **more), by=acting(ada))


def export(project: Project, ada: User) -> Export:
    return export_decisions(project, by=acting(ada))


def exported(project: Project, ada: User) -> Task:
    made = export(project, ada)
    assert made.task is not None and made.is_new
    return made.task


def files_of(task: Task) -> dict[str, str]:
    git = paths.repository(task.project).git
    names = git.line("diff", "--name-only", task.base_commit, task.head_commit).splitlines()
    return {name: git.run("cat-file", "blob", f"{task.head_commit}:{name}").decode() for name in names}


def merge(task: Task, source: GitRepository) -> None:
    """Do as a team does that accepts the result."""
    source.git("fetch", "--quiet", str(paths.repository(task.project).path), task.branch)
    source.git("merge", "--quiet", "--no-edit", "FETCH_HEAD")


def test_each_active_decision_becomes_a_file_of_one_commit(shop: Project, ada: User) -> None:
    decide(shop, ada, "Money is stored in cents.", reason="Floats lose cents.")
    decide(shop, ada, "Prices are rounded.", scope=DecisionScope.PATHS, paths=["src/**"])
    task = exported(shop, ada)
    files = files_of(task)
    assert list(files) == [
        "docs/decisions/d-1-money-is-stored-in-cents.md",
        "docs/decisions/d-2-prices-are-rounded.md",
    ]
    first, second = files.values()
    assert first.startswith("---\nstatus: accepted\ndate: '20") and "decision-makers:\n- Ada\n" in first
    assert first.endswith(
        "---\n\n# Money is stored in cents\n\n## Context and Problem Statement\n\nFloats lose cents.\n\n"
        "## Decision Outcome\n\nMoney is stored in cents.\n"
    )
    assert "decision: D-2\npaths:\n- src/**\n" in second
    log = paths.repository(shop).git.line("log", "--format=%an|%s", f"{task.base_commit}..{task.branch}")
    assert log == "Cat Herder|docs: export decisions to docs/decisions"


def test_the_result_is_reviewed_published_and_proposed_like_others(
    shop: Project, ada: User, source: GitRepository
) -> None:
    eve = MembershipFactory.create(project=shop, role=Role.MEMBER).user
    decide(shop, ada, "Money is stored in cents.")
    task = exported(shop, ada)
    assert (task.phase, task.steps.count(), task.created_by) == ("done", 0, ada)
    assert [one.target for one in task.transitions.order_by("pk")] == ["running", "done"]
    create_notifications()
    page = signed_in(eve).get(f"/tasks/{task.pk}/").text
    assert "d-1-money-is-stored-in-cents.md" in page and "Request changes" not in page and "Publish" in page
    assert "wrote these files" in page and "<h2>Steps</h2>" not in page
    assert "Request changes" not in signed_in(eve).get(f"/tasks/{task.pk}/diff/").text
    send_review(task, ReviewVerdict.APPROVE, by=acting(eve), via=Channel.WEB, commit=task.head_commit)
    with pytest.raises(IllegalMove, match="change the decisions and export again"):
        send_review(task, ReviewVerdict.REQUEST_CHANGES, by=acting(eve), via=Channel.WEB, body="No")
    publication = publish(task, by=acting(ada))
    carry_out(publication.pk)
    assert source.git("rev-parse", task.branch) == task.head_commit
    text = pull_request_body(task)
    assert "d-1-money-is-stored-in-cents.md" in text and "pipeline" not in text
    assert AuditEntry.objects.filter(task=task, action="task_created", actor=ada).exists()


def test_nothing_is_made_twice(shop: Project, ada: User, source: GitRepository) -> None:
    assert export(shop, ada).task is None
    decide(shop, ada, "Money is stored in cents.")
    task = exported(shop, ada)
    source.commit(**{"other.txt": "x"})
    assert export(shop, ada) == Export(task)
    merge(task, source)
    assert export(shop, ada).task is None
    assert Task.objects.count() == 1
    decide(shop, ada, "Times are UTC.")
    assert list(files_of(exported(shop, ada))) == ["docs/decisions/d-2-times-are-utc.md"]


def test_files_of_what_ended_say_so_and_keep_what_people_wrote(
    shop: Project, ada: User, source: GitRepository
) -> None:
    old, gone = decide(shop, ada, "Money is in cents."), decide(shop, ada, "Tabs.")
    merge(exported(shop, ada), source)
    name = "docs/decisions/d-1-money-is-in-cents.md"
    text = (source.path / name).read_text()
    source.commit(**{name: f"{text}\n## Consequences\n\nMore digits.\n"})
    changes.revise(old, DecisionContent("Money is in mills."), by=acting(ada))
    changes.retire(gone, by=acting(ada))
    task = exported(shop, ada)
    files = files_of(task)
    assert (
        files[name] == text.replace("accepted", "superseded by D-3") + "\n## Consequences\n\nMore digits.\n"
    )
    assert "status: deprecated" in files["docs/decisions/d-2-tabs.md"]
    assert list(files)[2:] == ["docs/decisions/d-3-money-is-in-mills.md"]
    assert "Changed, because the decision has" in task.body
    merge(task, source)
    fetch(shop)
    shown = {one.found.label: one for one in preview_import(shop).decisions}
    assert [shown[label].found.ended for label in ("D-1", "D-2", "D-3")] == ["superseded", "deprecated", ""]
    assert not any(one.is_suggested for one in shown.values())
    assert export(shop, ada).task is None


def test_keys_and_line_ends_of_people_stay_in_a_file_that_changes(
    shop: Project, ada: User, source: GitRepository
) -> None:
    """D7."""
    old = decide(shop, ada, "Money is in cents.")
    merge(exported(shop, ada), source)
    name = "docs/decisions/d-1-money-is-in-cents.md"
    text = (source.path / name).read_text().replace("date:", "consulted: [Grace]\ndate:")
    (source.path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    source.commit()
    changes.retire(old, by=acting(ada))
    task = exported(shop, ada)
    ended = text.replace("accepted", "deprecated").replace("\n", "\r\n")
    assert files_of(task) == {name: "\ufeff" + ended}
    merge(task, source)
    assert export(shop, ada).task is None


def test_an_import_of_its_own_export_offers_nothing_but_another_project_takes_all(
    shop: Project, ada: User, source: GitRepository
) -> None:
    decide(shop, ada, "# A heading\n\n```\nnot closed")
    decide(shop, ada, "Prices are rounded.", reason="<!-- why", scope=DecisionScope.PATHS, paths=["src/**"])
    decide(shop, ada, "Plans are short.", scope=DecisionScope.STEP, step="plan")
    merge(exported(shop, ada), source)
    fetch(shop)
    assert [one.imported_as for one in preview_import(shop).decisions] == ["D-1", "D-2", "D-3"]
    other = add_project("other", str(source.path), by=ada)
    found = preview_import(other).decisions
    made = import_decisions(other, [(one, one.found.statement) for one in found], by=acting(ada))
    assert [DecisionContent.from_decision(one) for one in made] == [
        DecisionContent.from_decision(one) for one in shop.decisions.order_by("number")
    ]
    assert export(other, ada).task is None, "they lie there as files already"


def test_records_that_people_wrote_decide_the_folder_and_stay_untouched(
    shop: Project, ada: User, source: GitRepository
) -> None:
    source.commit(**{"doc/adr/0001-utc.md": BY_HAND, "docs/README.md": "x"})
    fetch(shop)
    found = preview_import(shop).decisions
    (utc,) = import_decisions(
        shop, [(one, one.found.statement) for one in found], by=acting(ada), accept=True
    )
    decide(shop, ada, "Money is in cents.")
    assert list(files_of(exported(shop, ada))) == ["doc/adr/d-2-money-is-in-cents.md"]
    changes.retire(utc, by=acting(ada))
    decide(shop, ada, "Prices are rounded.")
    assert exported(shop, ada).left_out == ["doc/adr/0001-utc.md:1 states D-1, which is deprecated by now."]


def test_a_file_with_other_words_is_left_alone(shop: Project, ada: User, source: GitRepository) -> None:
    decide(shop, ada, "Money is in cents.")
    merge(exported(shop, ada), source)
    name = "docs/decisions/d-1-money-is-in-cents.md"
    source.commit(**{name: (source.path / name).read_text().replace("in cents.", "in mills.")})
    assert export(shop, ada).task is None
    decide(shop, ada, "Times are UTC.")
    assert "states something else" in exported(shop, ada).left_out[0]


def test_what_is_in_the_way_is_never_overwritten(shop: Project, ada: User, source: GitRepository) -> None:
    source.commit(docs="a file")
    decide(shop, ada, "Money is in cents.")
    with pytest.raises(WorkspaceError, match="docs is in the way: it is not a folder"):
        export(shop, ada)
    source.git("rm", "--quiet", "docs")
    taken = "docs/decisions/d-1-money-is-in-cents.md"
    source.commit(**{taken: "Notes\n"})
    assert list(files_of(exported(shop, ada))) == [taken.replace(".md", "-2.md")]


def test_only_members_export(shop: Project, ada: User) -> None:
    decide(shop, ada, "Money is in cents.")
    viewer = MembershipFactory.create(project=shop, role=Role.VIEWER).user
    where = f"/projects/{shop.pk}/decisions/"
    assert "Export" not in signed_in(viewer).get(where).text
    assert signed_in(viewer).post(f"{where}export/").status_code == 403
    assert signed_in(UserFactory.create()).post(f"{where}export/").status_code == 404
    with pytest.raises(NotAllowed):
        export_decisions(shop, by=acting(viewer))
    assert not Task.objects.exists()


def test_the_page_leads_to_the_task_or_says_that_nothing_changed(shop: Project, ada: User) -> None:
    browser, where = signed_in(ada), f"/projects/{shop.pk}/decisions/"
    assert "export/" in browser.get(where).text
    assert "Nothing to export" in browser.post(f"{where}export/", follow=True).text
    decide(shop, ada, "Money is in cents.")
    assert browser.post(f"{where}export/").headers["Location"] == f"/tasks/{Task.objects.get().pk}/"
    assert "Nothing has changed" in browser.post(f"{where}export/", follow=True).text
    lost = ProjectFactory.create(name="lost")
    assert (
        browser.post(f"/projects/{lost.pk}/decisions/export/").headers["Location"]
        == f"/projects/{lost.pk}/decisions/"
    )


def test_the_terminal_and_the_api_export(shop: Project, ada: User) -> None:
    def run() -> tuple[str, str]:
        out, err = StringIO(), StringIO()
        call_command("decisions", "--project", "shop", "--as", "ada", "--export", stdout=out, stderr=err)
        return out.getvalue(), err.getvalue()

    assert "Nothing to export" in run()[1]
    decide(shop, ada, "Money is in cents.")
    assert "Export decisions to docs/decisions, branch cat-herder/decisions" in run()[0]
    task = Task.objects.get()
    assert f"Nothing has changed since task {task.pk}" in run()[1]
    out = StringIO()
    call_command("status", str(task.pk), stdout=out)
    assert "no pipeline" in out.getvalue()
    answer = Script(ada).post("/projects/shop/decisions/export")
    assert answer.json() == {"task": task.pk, "branch": "cat-herder/decisions", "created": False}


def test_the_api_previews_and_imports(shop: Project, ada: User, source: GitRepository) -> None:
    money = "# Money\n\n## Decision\n\nNever floats.\n"
    source.commit(**{"doc/adr/1.md": BY_HAND, "doc/adr/2.md": money, "doc/adr/3.md": money})
    fetch(shop)
    script, where = Script(ada), "/projects/shop/decisions/import"
    found = script.get(where).json()
    assert [one["statement"] for one in found["decisions"]] == [
        "Use UTC: We use UTC.",
        "Money: Never floats.",
        "Money: Never floats.",
    ]
    assert found["faults"] == [] and all(one["suggested"] for one in found["decisions"])
    chosen = [{"key": found["decisions"][0]["key"], "statement": "Use UTC everywhere."}]
    made = script.post(where, {"decisions": chosen}).json()["decisions"]
    assert [(one["statement"], one["state"]) for one in made] == [("Use UTC everywhere.", "proposed")]
    rest = script.post(where, {"paths": ["doc/adr/2.md", "doc/adr/3.md"], "accept": True}).json()
    assert [(one["statement"], one["state"]) for one in rest["decisions"]] == [
        ("Money: Never floats.", "active"),
        ("Money: Never floats.", "active"),
    ]
    refused = script.post(where, {"decisions": [{"key": "nothing"}]})
    assert refused.status_code == 400 and "may have changed" in refused.json()["errors"][0]["message"]
    assert script.get(where, path="nowhere.md").status_code == 400


def test_d7_an_export_reads_five_megabytes_its_own_files_first_and_says_what_it_left_out(
    shop: Project, ada: User, source: GitRepository
) -> None:
    decide(shop, ada, "Money is stored in cents.")
    merge(exported(shop, ada), source)
    notes = f"{BY_HAND}\n## Notes\n\n{190_000 * 'x'}"
    source.commit(**{f"docs/adr/{number:04}.md": f"{notes}{number}\n" for number in range(30)})
    decide(shop, ada, "Tabs.")
    task = exported(shop, ada)
    assert list(files_of(task)) == ["docs/decisions/d-2-tabs.md"]
    assert task.left_out == [
        "Only the first 27 of 31 files were read: at most 2,000 files and 5,000,000 bytes are read at once."
    ]
