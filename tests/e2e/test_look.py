"""The style sheet as browsers take it: every rule, forced colours, paper, from right to left (W7)."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import ASK, SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

#: A selector that a browser does not understand takes its rule with it. What `-webkit-` means is theirs.
NOT_UNDERSTOOD = r"""async () => {
  const sheets = [...document.querySelectorAll("link[rel=stylesheet]")].map((link) => fetch(link.href));
  const text = (await Promise.all(sheets.map(async (sheet) => (await sheet).text()))).join("\n");
  const rules = text.replace(/\/\*[^]*?\*\//g, "").matchAll(/(?<=^|[{};])\s*([^{};@]+?)\s*\{/g);
  return [...rules].map((rule) => rule[1]).filter((one) => !/^(from|to)$|-webkit-/.test(one))
    .filter((one) => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(`${one} { color: red; }`);
      return sheet.cssRules.length === 0;
    });
}"""
SAY = """
from tasks_app.history.events.blocks import NewEvent, append
import uuid
step = Task.objects.get(pk={task}).steps.first()
run = Run.objects.create(step=step, number=1, reason="first", outcome="finished", session_id=uuid.uuid4())
append(run, [NewEvent(EventKind.TEXT, {{"text": text}}) for text in {texts!r}], seq=0)
"""


def style(place: Locator, name: str) -> str:
    return str(place.evaluate("(element, name) => getComputedStyle(element)[name]", name))


def log_of(portal: UpPortal, page: Page, texts: list[str]) -> None:
    """The page of a task whose log says these."""
    task = portal.new_task("# A log\n", started=False)
    if texts:
        portal.rows(SAY.format(task=task, texts=texts))
    page.goto(f"{portal.url}/tasks/{task}/log/")


def test_every_rule_is_understood(portal: UpPortal, sign_in: SignIn) -> None:
    assert sign_in(portal).evaluate(NOT_UNDERSTOOD) == []


def test_a_log_that_says_nothing_has_nothing_to_choose_from(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    log_of(portal, page, [])
    expect(page.get_by_text("The log starts with the task.")).to_be_visible()
    expect(page.locator("#follow")).to_be_hidden()
    expect(page.get_by_role("link", name="Errors")).to_be_hidden()


def test_a_filter_that_finds_nothing_says_so_and_can_be_left(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    log_of(portal, page, ["All went well."])
    page.get_by_role("link", name="Errors").click()
    expect(page.locator(".log-empty")).to_have_text("No entries of this kind.")
    page.get_by_role("link", name="All", exact=True).click()
    expect(page.get_by_text("All went well.")).to_be_visible()
    expect(page.locator(".log-empty")).to_be_hidden()


def test_on_paper_the_log_is_whole_and_the_navigation_is_left_out(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    log_of(portal, page, [f"Line {number}." for number in range(90)])
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    assert page.evaluate("() => { const log = document.getElementById('log-box');"
                         " return log.scrollHeight - log.clientHeight; }") == 0  # fmt: skip
    expect(page.locator(".top")).to_be_hidden()
    expect(page.locator("#follow")).to_be_hidden()
    assert style(page.locator("body"), "color") == "rgb(28, 28, 26)", "light text cannot be read on paper"


def test_with_forced_colours_one_sees_what_is_chosen(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal, forced_colors="active")
    page.goto(f"{portal.url}/tasks/all/?phase=done")
    done, failed = (page.locator("label.chip-choice", has_text=name) for name in ("done", "failed"))
    assert style(done, "borderTopColor") != style(failed, "borderTopColor")
    this, other = (page.get_by_role("link", name=name, exact=True) for name in ("All", "Now"))
    assert style(this, "borderBottomColor") != style(other, "borderBottomColor")


def test_text_from_right_to_left_stands_in_its_own_order(portal: UpPortal, sign_in: SignIn) -> None:
    _, number = portal.rows(ASK)
    portal.rows(
        f"Question.objects.filter(pk={number}).update(items=[{{'question': 'أي ملف CSV؟', 'header': 'ملف',"
        " 'options': [{'label': 'ملف CSV', 'description': 'واحد'}, {'label': 'لا'}]}])"
    )
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    card = page.locator(f"#question-{number}")
    for place in (card.locator(".headline"), card.locator(".choice-label").first, card.get_by_label("Notes")):
        assert style(place, "unicodeBidi") == "plaintext"


@pytest.mark.parametrize("width", [1440, 390])
def test_a_refusal_stands_above_the_task(portal: UpPortal, sign_in: SignIn, width: int) -> None:
    task = portal.new_task("# Not begun yet\n", started=False)
    page = sign_in(portal, viewport={"width": width, "height": 900})
    page.goto(f"{portal.url}/tasks/{task}/")
    token = page.locator("[name=csrfmiddlewaretoken]").first.input_value()
    page.request.post(
        f"{portal.url}/tasks/{task}/resume/",
        form={"csrfmiddlewaretoken": token},
        headers={"Referer": portal.url},
        max_redirects=0,
    )
    page.reload()
    expect(page.locator(".messages")).to_contain_text("Not begun yet")
    # Measured at once: the head is fetched again now and then.
    above, below = page.evaluate(
        "[document.querySelector('.messages'), document.querySelector('.task-bar')]"
        ".map((one) => one.getBoundingClientRect().top)"
    )
    assert above < below
