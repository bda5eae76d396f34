"""The form for a new task in a real browser: text and settings kept the same, preview, drafts, and a
file of the repository (W2, W7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.portal import WebServer

pytestmark = pytest.mark.browser

SEED = """
from pathlib import Path
from tests.e2e.visited_pages import real_project, session
from tests.factories import UserFactory
admin = UserFactory.create(username="admin", is_superuser=True)
result = [real_project("shop", Path("{folder}"), admin).pk, session(admin)]
"""
TASKS = "result = list(Task.objects.values_list('title', 'pipeline', 'threshold', 'file', 'text'))"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebServer, list[Any]]]:
    folder = tmp_path_factory.mktemp("new-task")
    portal = WebServer(folder / "data")
    told = portal.rows(SEED.replace("{folder}", str(folder)))
    portal.start()
    yield portal, told
    portal.stop()


@pytest.fixture
def page(browser: Browser, served: tuple[WebServer, list[Any]]) -> Iterator[Page]:
    portal, (_, session) = served
    complaints: list[str] = []
    context = browser.new_context(base_url=f"http://{portal.address}")
    context.add_cookies([{"name": "sessionid", "value": session, "url": f"http://{portal.address}"}])
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
    yield page
    context.close()
    assert complaints == []


def text_of(page: Page) -> str:
    return page.input_value("#id_text")


def test_a_task_is_written_looked_at_and_sent(page: Page, served: tuple[WebServer, list[Any]]) -> None:
    page.goto("/tasks/new/")
    page.fill("#id_text", "# Paint *it*\n\nBlue.")
    page.get_by_label("quick", exact=False).check()
    page.get_by_label("Asks about any ambiguity", exact=False).check()
    assert text_of(page) == "---\npipeline: quick\ninteractionThreshold: 5\n---\n# Paint *it*\n\nBlue."
    page.fill("#id_text", text_of(page).replace("Threshold: 5", "Threshold: 2"))
    expect(page.get_by_role("radio", name=re.compile("^2 .* before anything destructive"))).to_be_checked()

    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview h3")).to_have_text("Paint it")
    expect(page.locator("#id_text")).to_be_hidden()
    page.get_by_role("button", name="Write").click()

    page.goto("/tasks/new/")
    expect(page.locator("#draft-note")).to_contain_text("was restored")
    page.locator("#id_text").press("Control+Enter")
    page.wait_for_url(re.compile(r"/tasks/\d+/$"))
    made = served[0].rows(TASKS)
    assert [task[:3] for task in made] == [["Paint *it*", "quick", 2]]

    page.go_back()
    page.wait_for_url(re.compile(r"/tasks/new/$"))
    assert text_of(page) == ""


def test_whom_it_asks_stands_in_the_text_as_a_list(page: Page) -> None:
    """Q1: so it is kept with the text, and read from one that is pasted."""
    page.goto("/tasks/new/")
    page.fill("#id_text", "# Sweep\n")
    page.get_by_text("More options").click()
    page.fill("#id_ask", "ann, @leads")
    page.select_option("#id_priority", "high")
    assert text_of(page) == '---\nask: [ann, "@leads"]\npriority: high\n---\n# Sweep\n'
    page.fill("#id_text", "---\nask: [bob, 'cas']\n---\n# Sweep\n")
    expect(page.locator("#id_ask")).to_have_value("bob, cas")
    page.fill("#id_ask", "")
    assert text_of(page) == "# Sweep\n"


def test_what_is_wrong_with_the_text_is_said_when_it_is_left(page: Page) -> None:
    page.goto("/tasks/new/")
    page.fill("#id_text", "---\ninteractionThreshold: 9\npipelin: quick\n---\n# Sweep\n")
    page.locator("#id_text").blur()
    faults = page.locator("#text-faults .refusal")
    expect(faults).to_have_text([re.compile("from 0 to 5"), re.compile("pipelin is not a known key")])
    page.fill("#id_text", "# Sweep\n")
    page.locator("#id_text").blur()
    expect(faults).to_have_count(0)


def test_the_name_of_a_project_is_judged_while_it_is_typed(page: Page) -> None:
    page.goto("/projects/")
    page.locator(".project-add summary").click()
    said = page.locator("[data-fault-of=id_name] span:visible")
    for name, fault in (("Shop", "pattern"), ("shop", "taken"), ("shop2", "")):
        page.fill("#id_name", name)
        expect(said).to_have_count(1 if fault else 0)
        if fault:
            expect(said).to_have_attribute("data-if", fault)


def test_a_file_is_searched_and_taken(page: Page, served: tuple[WebServer, list[Any]]) -> None:
    page.goto("/tasks/new/")
    page.get_by_text("Choose a file from the repository").click()
    page.get_by_label("Search names").fill("round")
    expect(page.locator("#files a")).to_have_count(2)
    page.get_by_role("link", name="tasks/round.md").click()
    expect(page.locator("#picked")).to_have_text("From tasks/round.md")
    page.get_by_role("button", name="Create only").click()
    page.wait_for_url(re.compile(r"/tasks/\d+/$"))
    assert "tasks/round.md" in [task[3] for task in served[0].rows(TASKS)]


def test_a_folder_shows_what_would_run(page: Page) -> None:
    page.goto("/tasks/new/")
    page.get_by_label("A folder of tasks").check()
    page.get_by_text("from the repository").click()
    page.get_by_role("link", name="tasks/prices", exact=True).click()
    expect(page.locator("#would-run li")).to_have_text(["01-round.md", "02-tax.md"])
    expect(page.locator("#id_text")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"/tasks/new/$"))


def test_a_draft_is_kept_beside_a_file_until_it_is_restored(
    page: Page, served: tuple[WebServer, list[Any]]
) -> None:
    page.goto("/tasks/new/")
    page.fill("#id_text", "# Mine")
    page.goto(f"/tasks/new/?project={served[1][0]}&file=tasks/round.md")
    expect(page.locator("#draft-note")).to_contain_text("There is a draft")
    assert "Mine" not in text_of(page)
    page.get_by_role("button", name="Restore").click()
    assert text_of(page) == "# Mine"
    page.goto("/tasks/new/")
    page.get_by_role("button", name="Discard").click()
    assert text_of(page) == ""
    page.reload()
    assert text_of(page) == "" and page.locator("#draft-note").is_hidden()


def test_without_scripts_the_form_works_as_well(
    browser: Browser, served: tuple[WebServer, list[Any]]
) -> None:
    portal, (_, session) = served
    context = browser.new_context(base_url=f"http://{portal.address}", java_script_enabled=False)
    context.add_cookies([{"name": "sessionid", "value": session, "url": f"http://{portal.address}"}])
    page = context.new_page()
    page.goto("/tasks/new/")
    page.fill("#id_text", "# By hand")
    page.get_by_label("quick", exact=False).check()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview h3")).to_have_text("By hand")
    page.get_by_role("button", name="Create only").click()
    page.wait_for_url(re.compile(r"/tasks/\d+/$"))
    context.close()
    made = {task[0]: task for task in portal.rows(TASKS)}
    assert made["By hand"][4] == "---\npipeline: quick\n---\n# By hand"
