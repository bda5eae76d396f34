"""The pages of decisions: list, one decision, its form and its buttons (D7)."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from tasks_app.models import Decision, DecisionEvent, DecisionState, Project, Role, User
from tasks_app.services.decisions.changes import make_decision, retire
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.projects.projects import add_project
from tests.browser import signed_in
from tests.factories import DecisionFactory, MembershipFactory, QuestionFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.markup import tidy
from tests.people import acting

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann(project: Project) -> User:
    user: User = MembershipFactory.create(project=project, user__username="ann").user
    return user


@pytest.fixture
def browser(ann: User) -> Client:
    return signed_in(ann)


def decisions(project: Project, rest: str = "") -> str:
    return f"/projects/{project.pk}/decisions/{rest}"


def numbers_in(page: str) -> list[int]:
    return [
        int(number)
        for number in re.findall(r'class="machine" href="[^"]*"><span class="whole">D-(\d+)<', page)
    ]


def test_an_export_that_is_reloaded_shows_the_list(browser: Client, project: Project) -> None:
    page = browser.get(decisions(project, "export/"))
    assert (page.status_code, page.url) == (302, decisions(project))  # type: ignore[attr-defined]


def test_an_empty_list_says_how_a_decision_comes_about(browser: Client, project: Project) -> None:
    assert "When you answer a question, choose how far" in tidy(browser.get(decisions(project)).text)


def test_d3_a_search_finds_other_forms_of_a_word_and_what_was_asked(
    browser: Client, project: Project
) -> None:
    items = [{"question": "Which names are für later?", "header": "Spelling", "options": []}]
    asked = QuestionFactory.create(task__project=project, items=items)
    half = DecisionFactory.create(project=project, statement="Round half up.")
    names = DecisionFactory.create(project=project, statement="As they come.", question=asked)
    wanted = {
        "rounding": half,
        "Rounded half": half,
        "spell": names,
        "für": names,
        "name": names,
        "header": None,
    }
    for words, found in wanted.items():
        page = browser.get(decisions(project), {"q": words}).text
        assert numbers_in(page) == [one.number for one in [found] if one], words


def test_those_to_review_are_first_with_their_reason(browser: Client, project: Project) -> None:
    stale = DecisionFactory.create(project=project, review_reason="stale", review_note="src/money.py")
    due = DecisionFactory.create(project=project, review_after=timezone.localdate() - timedelta(days=1))
    other = DecisionFactory.create(project=project)
    page = browser.get(decisions(project)).text
    assert numbers_in(page) == [due.number, stale.number, other.number]
    assert "The code that it cites has changed: src/money.py" in page
    assert page.count("decision-due") == 2
    assert numbers_in(browser.get(decisions(project, "?state=review")).text) == [due.number, stale.number]


def test_the_search_and_the_state_are_in_the_url(browser: Client, project: Project) -> None:
    cents = DecisionFactory.create(project=project, statement="Money is stored in cents.")
    gone = DecisionFactory.create(project=project, statement="Money is a float.", state="retired")
    assert numbers_in(browser.get(decisions(project, "?q=money")).text) == [cents.number]
    assert numbers_in(browser.get(decisions(project, "?q=money&state=retired")).text) == [gone.number]
    assert numbers_in(browser.get(decisions(project, f"?q=D-{gone.number}&state=all")).text) == [gone.number]
    page = browser.get(decisions(project, "?q=plum&state=nonsense&page=-3")).text
    assert "No matching decisions" in page


def test_long_lists_have_pages(browser: Client, project: Project) -> None:
    for _ in range(31):
        DecisionFactory.create(project=project)
    page = browser.get(decisions(project)).text
    assert len(numbers_in(page)) == 30 and "?page=2" in page
    assert numbers_in(browser.get(decisions(project, "?page=2")).text) == [1]


def test_a_decision_shows_its_question_versions_and_history(
    browser: Client, project: Project, ann: User
) -> None:
    question = QuestionFactory.create(task__project=project)
    old = DecisionFactory.create(project=project, question=question, state="superseded")
    new = DecisionFactory.create(project=project, replaces=old, reason="Floats **round**.")
    newest = DecisionFactory.create(project=project, replaces=new)
    DecisionEvent.objects.create(decision=new, kind="followed", user=ann, task=question.task, note="As said.")
    page = tidy(browser.get(decisions(project, f"{new.number}/")).text)
    assert "<strong>round</strong>" in page and "As said." in page and "ann followed it" in page
    versions = page.partition("Versions")[2].partition("</ol>")[0]
    assert numbers_in(versions.replace(' aria-current="page"', "")) == [old.number, new.number, newest.number]
    assert question.task.title in page
    assert f"/questions/{question.pk}/" in browser.get(decisions(project, f"{old.number}/")).text


def test_a_decision_is_made_from_the_form(browser: Client, project: Project, ann: User) -> None:
    given = {
        "statement": "Use UTC.",
        "reason": "Zones.",
        "scope": "paths",
        "paths": "src/**\nlib/**",
        "step": "do",
    }
    assert browser.post(decisions(project, "new/"), given).status_code == 302
    made = Decision.objects.get()
    assert (made.statement, made.paths, made.decided_by) == ("Use UTC.", ["src/**", "lib/**"], ann)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"statement": " "}, "This field is required."),
        ({"statement": "x", "scope": "paths"}, "Name at least one path"),
        ({"statement": "x", "scope": "paths", "paths": "/etc"}, "must be relative"),
        ({"statement": "x", "scope": "step"}, "Name the step"),
        ({"statement": "x", "review_after": "2001-01-01"}, "Must be a day after today"),
        ({"statement": "x", "review_after": "soon"}, "Enter a day such as"),
        ({"statement": "x" * 2001}, "at most 2000 characters"),
        ({"statement": "x\0y"}, "Null characters"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_lost(
    browser: Client, project: Project, given: dict[str, str], fault: str
) -> None:
    page = browser.post(decisions(project, "new/"), {"scope": "project", "reason": "Because.", **given})
    assert page.status_code == 400 and fault in page.text and "Because." in page.text
    assert not Decision.objects.exists()


def test_a_revision_is_a_new_decision(browser: Client, project: Project) -> None:
    old = DecisionFactory.create(project=project, statement="Money is stored in cents.", reason="Exact.")
    form = browser.get(decisions(project, f"{old.number}/revise/")).text
    assert "Money is stored in cents." in form and "Exact." in form
    given = {"statement": "Money is stored in mills.", "reason": "Exact.", "scope": "project"}
    answer = browser.post(decisions(project, f"{old.number}/revise/"), given)
    assert answer["Location"] == decisions(project, "2/")
    old.refresh_from_db()
    assert old.state == DecisionState.SUPERSEDED
    again = browser.post(decisions(project, f"{old.number}/revise/"), given)
    assert again.status_code == 400 and "D-2 replaces it" in again.text and "mills" in again.text
    assert browser.get(decisions(project, f"{old.number}/revise/")).status_code == 302


def test_the_buttons_do_what_they_say(browser: Client, project: Project, ann: User) -> None:
    one = DecisionFactory.create(project=project, state="proposed", decided_by=None, decided_at=None)
    for action, given, button, state in (
        ("confirm", {}, "Accept", "active"),
        ("retire", {"reason": "Old."}, "Retire…", "retired"),
        ("restore", {}, "Restore", "active"),
    ):
        assert button in browser.get(decisions(project, f"{one.number}/")).text
        browser.post(decisions(project, f"{one.number}/{action}/"), given)
        one.refresh_from_db()
        assert one.state == state
    assert one.decided_by == ann and one.events.get(kind="retired").note == "Old."
    Decision.objects.update(review_reason="unfit", review_note="No.")
    assert "Keep…" in browser.get(decisions(project, f"{one.number}/")).text
    browser.post(decisions(project, f"{one.number}/keep/"), {"note": "Still right."})
    one.refresh_from_db()
    assert one.why_review == "" and one.events.get(kind="kept").note == "Still right."


def test_a_button_that_came_too_late_says_so(browser: Client, project: Project, ann: User) -> None:
    one = DecisionFactory.create(project=project)
    retire(one, by=acting(ann))
    page = browser.post(decisions(project, f"{one.number}/retire/"), follow=True).text
    assert f"{one.label} is retired." in page


def test_viewers_look_and_outsiders_find_nothing(project: Project) -> None:
    one = DecisionFactory.create(project=project)
    viewer = signed_in(MembershipFactory.create(project=project, role=Role.VIEWER).user)
    page = viewer.get(decisions(project, f"{one.number}/")).text
    assert "Retire…" not in page and "Revise" not in page
    assert "New decision" not in viewer.get(decisions(project)).text
    assert viewer.post(decisions(project, "new/"), {"statement": "x"}).status_code == 403
    outsider = signed_in(UserFactory.create())
    for rest in ("", f"{one.number}/", f"{one.number}/revise/", "new/"):
        assert outsider.get(decisions(project, rest)).status_code == 404
    assert signed_in(UserFactory.create(is_superuser=True)).get(decisions(project, "99/")).status_code == 404


def test_projects_and_inbox_say_what_is_to_be_reviewed(browser: Client, project: Project) -> None:
    assert "No decisions yet" in browser.get(f"/projects/{project.pk}/").text
    DecisionFactory.create(project=project)
    assert "1 active" in browser.get(f"/projects/{project.pk}/").text
    assert "need" not in browser.get("/inbox/").text.partition("<main")[2].partition("Filter")[0]
    DecisionFactory.create(project=project, review_reason="stale")
    DecisionFactory.create(review_reason="stale")
    assert "1 to review" in browser.get(f"/projects/{project.pk}/").text
    page = browser.get("/inbox/").text
    assert f"1 decision of {project.name} needs a look" in page and page.count("needs a look") == 1


def test_quick_search_finds_them_by_label_and_words(browser: Client, project: Project) -> None:
    one = DecisionFactory.create(project=project, statement="Money is stored in cents.")
    DecisionFactory.create(number=7, statement="Money of others.")
    for text in (one.label, one.label.lower(), "cents money"):
        page = browser.get("/search/", {"q": text}).text
        assert decisions(project, f"{one.number}/") in page and "of others" not in page
    assert decisions(project) not in browser.get("/search/", {"q": "D-7"}).text
    assert browser.get("/search/", {"q": "D-99999999999999"}).status_code == 200


def test_what_changed_in_a_cited_file_is_shown(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "shop", **{"money.py": "cents = 1\n", "other.py": "x\n"})
    admin = UserFactory.create(is_superuser=True)
    project = add_project("shop", str(source.path), by=admin)
    content = DecisionContent("Money is in `money.py` and other.py.")
    one = make_decision(project, content, by=acting(admin))
    browser = signed_in(admin)
    where = decisions(project, f"{one.number}/")
    assert browser.get(where).text.count("unchanged") == 2
    blob = one.cites[1]["blob"]
    Decision.objects.update(cites=[{**one.cites[0], "blob": blob}, one.cites[1]])
    assert "Changed: show what" in browser.get(where).text
    page = browser.get(f"{where}file/?path=money.py").text
    assert "cents = 1" in page and "dl-add" in page
    assert "same content" in browser.get(f"{where}file/?path=other.py").text
    assert browser.get(f"{where}file/?path=/etc/passwd").status_code == 404
    Decision.objects.update(cites=[{"path": "money.py", "blob": "a" * 40}, {"path": "gone.py", "blob": blob}])
    assert "cannot be shown" in browser.get(f"{where}file/?path=money.py").text
    assert "deleted or moved" in browser.get(where).text
