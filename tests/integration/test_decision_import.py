"""Importing decisions from files of a repository, on the page and in the terminal (D7)."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from tasks_app.core.errors import BadInput, NotAllowed
from tasks_app.models import Decision, Project, Role, User
from tasks_app.services.decisions.changes import mark_reviewed
from tasks_app.services.decisions.records import import_decisions, preview_import
from tasks_app.services.projects.projects import add_project, fetch
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.people import acting

pytestmark = pytest.mark.django_db

RECORD = "# 1. Cents\n\n## Status\n\n{status}\n\n## Decision\n\nWe will store cents.\n"
TIMES = "# 4. Times\n\n## Context\n\nZones.\n\n## Decision\n\nUse UTC.\n"
FLOATS = "# 5. Money\n\n## Decision\n\nNever floats.\n"
FILES = {
    "CLAUDE.md": "# Code\n\n- Never guess.\n",
    "docs/adr/0004-times.md": TIMES,
    "docs/adr/0005-money.md": FLOATS,
    "docs/adr/0006-empty.md": "# 6. Empty\n",
    "docs/adr/0001-cents.md": RECORD.format(status="Accepted"),
    "docs/adr/0002-mills.md": RECORD.format(status="Superseded by 3"),
    "docs/adr/0003-binary.md": "a\0b",
    "README.md": "- Not a rule\n",
}


@pytest.fixture
def ada() -> User:
    user: User = UserFactory.create(is_superuser=True, username="ada")
    return user


@pytest.fixture
def shop(tmp_path: Path, ada: User) -> Project:
    return add_project("shop", str(GitRepository.make(tmp_path / "shop", **FILES).path), by=ada)


def where(project: Project) -> str:
    return f"/projects/{project.pk}/decisions/import/"


def keys_in(page: str, *, ticked: bool) -> list[str]:
    return re.findall(r'name="pick" value="(\w+)"' + (" checked>" if ticked else ">"), page)


def test_what_was_found_is_shown_and_what_ended_is_not_ticked(shop: Project, ada: User) -> None:
    page = signed_in(ada).get(where(shop)).text
    assert len(keys_in(page, ticked=True)) == 3 and len(keys_in(page, ticked=False)) == 1
    assert "superseded" in page and "0003-binary.md is not text." in page
    assert "Not a rule" not in page and "Never guess" not in page and "0006-empty" not in page


def test_what_is_ticked_is_proposed_as_it_was_edited_and_not_offered_again(shop: Project, ada: User) -> None:
    browser = signed_in(ada)
    _, first, second = keys_in(browser.get(where(shop)).text, ticked=True)
    given = {"pick": [first, second], f"statement-{first}": "Use UTC everywhere."}
    assert browser.post(where(shop), given).status_code == 302
    made = Decision.objects.order_by("number")
    assert [(one.statement, one.source, one.state) for one in made] == [
        ("Use UTC everywhere.", "docs/adr/0004-times.md:1", "proposed"),
        ("Money: Never floats.", "docs/adr/0005-money.md:1", "proposed"),
    ]
    assert made[0].reason == "Zones." and made[0].cites[0]["path"] == "docs/adr/0004-times.md"
    page = browser.get(where(shop)).text
    assert 'imported as <span class="whole">D-2</span>' in page and second not in keys_in(page, ticked=True)


def test_those_that_hold_already_are_decided_by_who_imports(shop: Project, ada: User) -> None:
    browser = signed_in(ada)
    keys = keys_in(browser.get(where(shop)).text, ticked=True)
    browser.post(where(shop), {"pick": keys, "accept": "1"})
    assert set(Decision.objects.values_list("state", "decided_by__username")) == {("active", "ada")}


@pytest.mark.parametrize(
    ("pick", "statement", "fault"),
    [(0, "", "Choose at least one"), (-1, "", "have changed meanwhile"), (1, " ", "say what is decided")],
)
def test_what_is_refused_imports_nothing_and_loses_nothing(
    shop: Project, ada: User, pick: int, statement: str, fault: str
) -> None:
    browser = signed_in(ada)
    keys = keys_in(browser.get(where(shop)).text, ticked=True)
    picked = {0: [], -1: ["0" * 16], 1: keys}[pick]
    given = {"pick": picked, f"statement-{keys[0]}": statement, f"statement-{keys[1]}": "Edited."}
    page = browser.post(where(shop), given)
    assert page.status_code == 400 and fault in page.text and "Edited." in page.text
    assert not Decision.objects.exists()


def test_viewers_cannot_import_and_a_lost_repository_is_said(shop: Project, ada: User) -> None:
    viewer = MembershipFactory.create(project=shop, role=Role.VIEWER).user
    assert signed_in(viewer).get(where(shop)).status_code == 302
    assert signed_in(viewer).post(where(shop), {}).status_code == 403
    assert signed_in(UserFactory.create()).get(where(shop)).status_code == 404
    with pytest.raises(NotAllowed):
        import_decisions(shop, [], by=acting(viewer))
    assert "refusal" in signed_in(ada).get(where(ProjectFactory.create(name="lost"))).text


def test_d7_why_a_named_file_gives_nothing_is_said(shop: Project) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.md is no file"):
        preview_import(shop, ["nowhere.md"])
    for name in ("README.md", "docs/adr/0006-empty.md"):
        preview = preview_import(shop, [name])
        assert not preview.decisions
        assert preview.faults == [f"{name} has no section “Decision” or “Decision Outcome” with a text."]


def test_d7_if_no_record_states_a_decision_the_page_says_why(tmp_path: Path, ada: User) -> None:
    files = {"docs/adr/0001.md": "# Title\n"}
    project = add_project("silent", str(GitRepository.make(tmp_path / "silent", **files).path), by=ada)
    assert "docs/adr/0001.md has no section “Decision”" in signed_in(ada).get(where(project)).text


def test_the_terminal_shows_and_imports(shop: Project, ada: User) -> None:
    def run(*arguments: str) -> tuple[str, str]:
        out, err = StringIO(), StringIO()
        call_command("decisions", "--project", "shop", "--as", "ada", *arguments, stdout=out, stderr=err)
        return out.getvalue(), err.getvalue()

    out, err = run("--import", "--dry-run")
    assert (
        "docs/adr/0004-times.md:1  Times: Use UTC." in out and "3 to import." in err and "superseded" in err
    )
    assert not Decision.objects.exists()
    named = ("docs/adr/0004-times.md", "docs/adr/0005-money.md", "docs/adr/0006-empty.md")
    out, err = run("--import", *named, "--accept")
    assert "D-2  docs/adr/0005-money.md:1  Money: Never floats." in out and "2 imported as active." in err
    assert "0006-empty.md has no section" in err
    assert "0 imported" in run("--import", named[0])[1]


def test_only_a_passage_that_changed_or_is_gone_asks_for_a_review(shop: Project, ada: User) -> None:
    found = preview_import(shop).decisions
    chosen = [(one, one.found.statement) for one in found if one.is_suggested]
    cents, utc, floats = import_decisions(shop, chosen, by=acting(ada), accept=True)
    source = GitRepository(Path(shop.source))

    def reviewed(**files: str) -> list[str]:
        source.commit(**files)
        fetch(shop)
        return [one.statement for one in shop.decisions.to_review().order_by("number")]

    assert reviewed(**{"docs/adr/0004-times.md": f"{TIMES}\n## Notes\n\nMore.\n"}) == []
    utc.refresh_from_db()
    assert utc.cites[0]["blob"] != chosen[1][0].blob, "what it is compared with next"
    assert reviewed(**{"docs/adr/0004-times.md": TIMES.replace("UTC", "UTC everywhere")}) == [utc.statement]
    assert utc.pk == shop.decisions.to_review().get().pk
    ended = RECORD.format(status="Deprecated")
    assert reviewed(**{"docs/adr/0001-cents.md": ended}) == [cents.statement, utc.statement]
    everything = [cents.statement, utc.statement, floats.statement]
    assert reviewed(**{"docs/adr/0005-money.md": "\0"}) == everything


def test_kept_without_its_passage_a_decision_cites_the_file_no_more(shop: Project, ada: User) -> None:
    found = preview_import(shop, ["docs/adr/0004-times.md", "docs/adr/0005-money.md"]).decisions
    chosen = [(one, one.found.statement) for one in found]
    utc, floats = import_decisions(shop, chosen, by=acting(ada), accept=True)
    source = GitRepository(Path(shop.source))
    source.commit(**{"docs/adr/0004-times.md": "# Gone\n", "docs/adr/0005-money.md": f"{FLOATS}\nMore.\n"})
    fetch(shop)
    assert [one.cites for one in (mark_reviewed(utc, by=acting(ada)),)] == [[]]
    kept = mark_reviewed(floats, by=acting(ada)).cites
    assert [one["passage"] for one in kept] == [floats.statement] and kept[0]["blob"] != found[1].blob
    source.commit(**{"docs/adr/0004-times.md": "# Anything else\n"})
    fetch(shop)
    assert not shop.decisions.to_review().exists()


def test_d7_an_import_reads_five_megabytes_at_once_and_says_what_it_left_out(
    tmp_path: Path, ada: User
) -> None:
    text = RECORD.format(status="Accepted") + "\n## Notes\n\n" + 190_000 * "x"
    files = {f"docs/adr/{number:04}.md": f"{text}{number}\n" for number in range(30)}
    project = add_project("large", str(GitRepository.make(tmp_path / "large", **files).path), by=ada)
    preview = preview_import(project)
    assert preview.faults == [
        "Only the first 26 of 30 files were read: at most 200 files and 5,000,000 bytes are read at once."
        " Name some files to import others."
    ]
    assert len(preview.decisions) == 26
    assert not preview_import(project, ["docs/adr/0029.md"]).faults
