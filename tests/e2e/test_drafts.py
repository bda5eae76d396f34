"""Nothing typed is lost: drafts of forms stay until the portal says that they were stored (R5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from playwright.sync_api import Error as PlaywrightError

from tasks_app.asgi_layers import sandboxed_peers
from tests.e2e.conftest import ASK, SignIn
from tests.portal import PASSWORD, UpPortal, WebServer

pytestmark = pytest.mark.browser

DECISION = """
from tasks_app.models import Decision
from tasks_app.services.decisions.changes import make_decision
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.permissions import Principal
admin = Principal.unrestricted(User.objects.get(username="admin"))
sample = Project.objects.get(name="sample")
made = make_decision(sample, DecisionContent("Money is stored in cents."), by=admin)
result = [made.project_id, made.number]
"""
OTHER = f"""
if not User.objects.filter(username="other").exists():
    User.objects.create_superuser("other", password={PASSWORD!r})
"""
REFUSALS = {
    "a fault": lambda route: route.fulfill(
        status=500, body="<!doctype html><h1>Fault</h1>", content_type="text/html"
    ),
    "no network": lambda route: route.abort(),
    "too long": lambda route: route.fulfill(
        status=413, body="This is too long.\n", content_type="text/plain"
    ),
    "another login": lambda route: route.fulfill(
        status=403, body="<!doctype html><h1>Out of date</h1>", content_type="text/html"
    ),
}


def drafts_of(page: Page) -> list[str]:
    return list(
        page.evaluate("Object.keys(localStorage).filter((key) => key.startsWith('catherder:draft:'))")
    )


def on_the_card(portal: UpPortal, number: int, *tabs: Page) -> Iterator[Locator]:
    """Open the question in each of the tabs; its cards."""
    for tab in tabs:
        tab.goto(f"{portal.url}/questions/{number}/")
        yield tab.locator(f"#question-{number}")


def answer_semicolon(card: Locator) -> None:
    card.get_by_role("radio", name="Semicolon").check()
    card.locator("[name=item-1-other]").fill("a.csv")
    card.locator(".card-buttons > .primary").click()


def end_login(page: Page) -> None:
    """The session ends, as if it was too old or ended elsewhere; the live connection does not notice yet."""
    page.context.clear_cookies(name="sessionid")


def log_in(page: Page, username: str = "admin") -> None:
    page.fill("[name=username]", username)
    page.fill("[name=password]", PASSWORD)
    page.click("button")


def test_r5_a_draft_of_a_repository_url_leaves_its_password_out(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    page.goto(f"{portal.url}/projects/")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.locator("#id_source").fill("https://ann:whisper@forge.example/shop.git")
    kept = page.evaluate("JSON.stringify(localStorage)")
    assert "forge.example/shop.git" in kept and "whisper" not in kept and "ann" not in kept


def test_r5_forms_of_the_admin_pages_have_drafts(portal: UpPortal, sign_in: SignIn) -> None:
    """A refused form comes back with 200 there, and was not stored."""
    portal.rows(OTHER)
    page = sign_in(portal)
    page.goto(f"{portal.url}/admin/tasks_app/user/")
    page.get_by_role("link", name="other").first.click()
    page.fill("#id_first_name", "Ann")
    page.reload()
    expect(page.locator("#id_first_name")).to_have_value("Ann")
    expect(page.locator(".draft-note")).to_contain_text("was restored")
    page.fill("#id_email", "no address")
    page.locator("[name=_continue]").click()
    expect(page.locator(".errorlist").first).to_be_visible()
    assert len(drafts_of(page)) == 1
    page.fill("#id_email", "ann@example.org")
    page.locator("[name=_continue]").click()
    expect(page.locator(".messagelist, .banner").first).to_be_visible()
    assert drafts_of(page) == []


@pytest.mark.parametrize("fault", REFUSALS)
def test_r5_an_answer_stays_whatever_comes_instead_of_the_portals_word(
    portal: UpPortal, sign_in: SignIn, fault: str
) -> None:
    _, number = portal.rows(ASK)
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    card = page.locator(f"#question-{number}")
    card.get_by_role("radio", name="Comma").check()
    card.locator("[name=item-1-other]").fill("a.csv")
    page.route("**/answer/", REFUSALS[fault])
    card.locator(".card-buttons > .primary").click()
    expect(card.locator(".refusal")).to_contain_text("kept")
    expect(card.locator("[name=item-1-other]")).to_have_value("a.csv")
    page.unroute("**/answer/")
    page.reload()
    expect(card.locator("[name=item-1-other]")).to_have_value("a.csv")
    card.locator(".card-buttons > .primary").click()
    expect(card).to_contain_text("Answered by admin")
    assert drafts_of(page) == []


def test_r5_an_answer_that_was_sent_after_the_login_ended_stays(portal: UpPortal, sign_in: SignIn) -> None:
    """What follows a redirect to the login was not stored. Another user does not see it."""
    portal.rows(OTHER)
    _, number = portal.rows(ASK)
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    card = page.locator(f"#question-{number}")
    card.get_by_role("radio", name="Comma").check()
    card.locator("[name=item-1-other]").fill("mine.csv")
    end_login(page)
    with page.expect_response(lambda answer: "/login/" in answer.url):
        card.locator(".card-buttons > .primary").click()
    expect(page.locator("#connection")).to_contain_text("You are logged out")
    expect(card.locator("[name=item-1-other]")).to_have_value("mine.csv")

    page.goto(f"{portal.url}/questions/{number}/")
    log_in(page, "other")
    expect(card.locator("[name=item-1-other]")).to_have_value("")
    page.goto("about:blank")  # or the page that has lost its login would leave for it meanwhile
    page.context.clear_cookies()
    page.goto(f"{portal.url}/questions/{number}/")
    log_in(page)
    expect(card.locator("[name=item-1-other]")).to_have_value("mine.csv")
    card.locator(".card-buttons > .primary").click()
    expect(card).to_contain_text("Answered by admin")
    assert drafts_of(page) == []


def test_r5_what_somebody_else_has_answered_meanwhile_is_not_thrown_away(
    portal: UpPortal, sign_in: SignIn
) -> None:
    _, number = portal.rows(ASK)
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    card = page.locator(f"#question-{number}")
    card.locator("[name=item-1-other]").fill("mine.csv")
    portal.rows(
        "from tasks_app.models import Channel\n"
        "from tasks_app.permissions import Principal\n"
        "from tasks_app.services.questions.answers import Reply, answer_question\n"
        f"question = Question.objects.get(pk={number})\n"
        "answers = {'Comma or semicolon?': 'Comma', 'What file name?': 'theirs.csv'}\n"
        "admin = Principal.unrestricted(User.objects.get(username='admin'))\n"
        "answer_question(question, Reply(answers), by=admin, via=Channel.API)"
    )
    kept = card.locator(".kept textarea")
    expect(kept).to_have_value("mine.csv")
    page.reload()
    expect(kept).to_have_value("mine.csv")
    card.get_by_role("button", name="Discard").click()
    expect(kept).to_be_hidden()
    page.reload()
    expect(kept).to_be_hidden()
    assert drafts_of(page) == []


@pytest.fixture(scope="module")
def undo_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    """A portal whose answers can be taken back during a whole test."""
    portal = UpPortal.migrated(tmp_path_factory.mktemp("portal") / "data")
    portal.variables["CATHERDER_UNDO_SECONDS"] = "60"
    yield portal.start()
    portal.stop()


@pytest.mark.parametrize("instead", ["option", "skip"])
def test_r5_an_own_text_that_the_answer_leaves_out_is_kept(
    undo_portal: UpPortal, sign_in: SignIn, instead: str
) -> None:
    """Until it is discarded; after Undo it is in its field again. What was sent is kept after Undo, too."""
    _, number = undo_portal.rows(ASK)
    page = sign_in(undo_portal)
    page.goto(f"{undo_portal.url}/questions/{number}/")
    card, own = page.locator(f"#question-{number}"), page.locator("[name=item-0-other]")
    kept = card.locator(".kept textarea")

    def answer() -> None:
        if instead == "skip":
            card.get_by_text("Skip…").click()
            card.get_by_role("button", name="Let the agent decide").click()
        else:
            card.get_by_role("radio", name="Semicolon").check()
            card.locator("[name=item-1-other]").fill("a.csv")
            card.locator(".card-buttons > .primary").click()
        expect(card).to_have_attribute("data-state", "dismissed" if instead == "skip" else "answered")

    card.get_by_role("radio", name="Something else").check()
    own.fill("A tab")
    answer()
    expect(kept).to_have_value("A tab")
    page.reload()
    expect(kept).to_have_value("A tab")
    card.get_by_role("button", name="Undo").click()
    expect(own).to_have_value("A tab")
    answer()
    card.get_by_role("button", name="Discard").click()
    card.get_by_role("button", name="Undo").click()
    expect(own).to_have_value("")
    if instead == "skip":
        assert drafts_of(page) == []
        return
    page.goto(f"{undo_portal.url}/questions/{number}/")
    expect(card.get_by_role("radio", name="Semicolon")).to_be_checked()
    expect(card.locator("[name=item-1-other]")).to_have_value("a.csv")


def test_r5_what_one_tab_has_typed_stays_when_another_tab_answers(
    undo_portal: UpPortal, sign_in: SignIn
) -> None:
    """Both have one draft. What the other one has sent is not said to be unsent."""
    _, number = undo_portal.rows(ASK)
    page = sign_in(undo_portal)
    other = page.context.new_page()
    card, elsewhere = on_the_card(undo_portal, number, page, other)
    card.get_by_role("radio", name="Something else").check()
    card.locator("[name=item-0-other]").fill("A tab")
    card.locator("[name=notes]").fill("12 wide")
    answer_semicolon(elsewhere)
    kept = card.locator(".kept textarea")
    expect(kept).to_have_value("A tab\n12 wide")
    page.reload()
    expect(kept).to_have_value("A tab\n12 wide")
    elsewhere.get_by_role("button", name="Undo").click()
    for one in (card, elsewhere):
        expect(one.locator("[name=item-0-other]")).to_have_value("A tab")
        expect(one.locator("[name=notes]")).to_have_value("12 wide")
    expect(elsewhere.get_by_role("radio", name="Semicolon")).to_be_checked()

    elsewhere.get_by_role("radio", name="Something else").check()
    elsewhere.locator(".card-buttons > .primary").click()
    for one in (card, elsewhere):
        expect(one).to_have_attribute("data-state", "answered")
        expect(one.locator(".kept")).to_be_hidden()
    page.wait_for_function("!Object.keys(localStorage).some((key) => key.startsWith('catherder:draft:'))")


def test_r5_what_was_typed_stays_if_the_card_changes_before_another_tab_knows_that_its_own_was_stored(
    undo_portal: UpPortal, sign_in: SignIn
) -> None:
    """Both tabs have one draft, which the one that sends it has marked: the cookie names the mark later."""
    _, number = undo_portal.rows(ASK)
    page, other = sign_in(undo_portal), sign_in(undo_portal)
    card, elsewhere = on_the_card(undo_portal, number, page, other)
    card.locator("[name=notes]").fill("12 wide")
    [key] = drafts_of(page)
    page.evaluate(
        "key => localStorage[key] = JSON.stringify({...JSON.parse(localStorage[key]), marks: ['sent']})", key
    )
    answer_semicolon(elsewhere)
    kept = card.locator(".kept textarea")
    expect(kept).to_have_value("12 wide")
    page.context.add_cookies([{"name": "stored_draft", "value": "sent", "url": undo_portal.url}])
    page.reload()
    expect(kept).to_have_value("12 wide")


def test_r5_after_an_undo_elsewhere_each_text_is_in_its_own_field(
    undo_portal: UpPortal, sign_in: SignIn
) -> None:
    _, number = undo_portal.rows(ASK)
    page, other = sign_in(undo_portal), sign_in(undo_portal)
    card, elsewhere = on_the_card(undo_portal, number, page, other)
    card.get_by_role("radio", name="Something else").check()
    card.locator("[name=item-0-other]").fill("A tab")
    card.locator("[name=notes]").fill("12 wide")
    answer_semicolon(elsewhere)
    expect(card.locator(".kept textarea")).to_have_value("A tab\n12 wide")
    elsewhere.get_by_role("button", name="Undo").click()
    expect(card.locator("[name=notes]")).to_have_value("12 wide")
    expect(card.locator("[name=item-0-other]")).to_have_value("A tab")
    expect(card.get_by_role("radio", name="Something else")).to_be_checked()


def test_r5_a_plain_form_is_restored_after_the_login_and_says_so(portal: UpPortal, sign_in: SignIn) -> None:
    project, decision = portal.rows(DECISION)
    page = sign_in(portal)
    address = f"{portal.url}/projects/{project}/decisions/{decision}/revise/"
    page.goto(address)
    page.get_by_label("Statement").fill("Money is stored in tenths of cents.")
    page.get_by_label("Reason").fill("Fuel prices.")
    end_login(page)
    page.locator("main form button.primary").click()
    expect(page.get_by_text("what you sent was not saved")).to_be_visible()
    log_in(page)
    expect(page.get_by_label("Statement")).to_have_value("Money is stored in tenths of cents.")
    expect(page.get_by_label("Reason")).to_have_value("Fuel prices.")
    expect(page.locator(".draft-note")).to_contain_text("It was not saved")

    page.locator(".draft-note button").click()
    expect(page.get_by_label("Statement")).to_have_value("Money is stored in cents.")
    assert drafts_of(page) == []

    # Refused by the portal, and then sent without a login: what was typed first is there as well.
    page.get_by_label("Reason").fill("Fuel prices.")
    page.get_by_label("Statement").fill(" ")
    page.locator("main form button.primary").click()
    expect(page.locator(".refusal").first).to_be_visible()
    page.get_by_label("Statement").fill("Money is stored in tenths of cents.")
    end_login(page)
    page.locator("main form button.primary").click()
    log_in(page)
    expect(page.get_by_label("Reason")).to_have_value("Fuel prices.")
    page.locator("main form button.primary").click()
    expect(page.get_by_role("heading", level=1)).not_to_contain_text(f"D-{decision}")
    expect(page.locator(".decision-text")).to_contain_text("tenths of cents")
    assert drafts_of(page) == []


def test_r5_a_form_that_is_sent_back_with_an_error_message_stays(portal: UpPortal, sign_in: SignIn) -> None:
    """The redirect after a refusal is not the portal's word that something was stored."""
    project, decision = portal.rows(DECISION)
    page = sign_in(portal)
    address = f"{portal.url}/projects/{project}/decisions/{decision}/"
    page.goto(address)
    page.get_by_text("Retire…").click()
    page.get_by_label("Reason").fill("No cents any more.")
    portal.rows(
        "from tasks_app.models import Decision\n"
        f"Decision.objects.filter(project={project}, number={decision}).update(state='superseded')"
    )
    page.get_by_role("button", name="Retire", exact=True).click()
    expect(page.locator(".message-error")).to_be_visible()
    assert len(drafts_of(page)) == 1
    portal.rows(
        "from tasks_app.models import Decision\n"
        f"Decision.objects.filter(project={project}, number={decision}).update(state='active')"
    )
    page.goto(address)
    page.get_by_text("Retire…").click()
    expect(page.get_by_label("Reason")).to_have_value("No cents any more.")
    page.get_by_role("button", name="Retire", exact=True).click()
    expect(page.locator(".decision-head").first).to_contain_text("retired")
    assert drafts_of(page) == []


def test_r5_without_scripts_a_refused_form_still_has_what_was_typed(
    portal: UpPortal, sign_in: SignIn
) -> None:
    project, decision = portal.rows(DECISION)
    page = sign_in(portal, java_script_enabled=False)
    page.goto(f"{portal.url}/projects/{project}/decisions/{decision}/revise/")
    page.get_by_label("Reason").fill("Fuel prices.")
    page.get_by_label("Statement").fill(" ")
    page.locator("main form button.primary").click()
    expect(page.get_by_label("Reason")).to_have_value("Fuel prices.")


def test_r5_secrets_are_not_kept(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    page.goto(f"{portal.url}/me/notifications/")
    page.locator("[name=chat]").fill("https://chat.example/hook/secret")
    page.goto(f"{portal.url}/me/password/")
    for field in page.locator("main [type=password]").all():
        field.fill("correct horse")
    stored: Any = page.evaluate("JSON.stringify(localStorage)")
    assert "secret" not in stored and "horse" not in stored


def test_r5_a_comment_stays_until_it_is_stored(portal: UpPortal, sign_in: SignIn) -> None:
    """A review's summary and a reply as well: they are sent by htmx and by the same mechanism."""
    task = portal.new_task("# Compare", started=False)
    portal.rows(
        "from django.db.models import F\n"
        f"Task.objects.filter(pk={task}).update(phase='done', head_commit=F('base_commit'))"
    )
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/diff/")
    summary = page.locator("#review-body")
    summary.fill("Nearly there.")
    end_login(page)
    with page.expect_response(lambda answer: "/login/" in answer.url):
        page.get_by_role("button", name="Comment", exact=True).click()
    page.goto(f"{portal.url}/tasks/{task}/diff/")
    log_in(page)
    expect(summary).to_have_value("Nearly there.")
    with page.expect_request("**/review/send/"):
        page.get_by_role("button", name="Comment", exact=True).click()
    page.wait_for_url(f"**/tasks/{task}/")
    assert drafts_of(page) == []
    page.goto(f"{portal.url}/tasks/{task}/diff/")
    expect(summary).to_have_value("")


def test_r5_drafts_of_earlier_versions_and_with_a_secret_are_removed(
    portal: UpPortal, sign_in: SignIn
) -> None:
    page = sign_in(portal)
    user = page.evaluate("document.documentElement.dataset.user")
    draft = '{"at":"2126-01-01T00:00:00Z","value":[{"name":"%s","value":"typed"}],"marks":[]}'
    removed = {
        "catherder:draft:12": "{}",
        "catherder:new-task:3": "{}",
        'catherder:comment:tasks/4:["a.py","new","1",""]': "text",
        f"catherder:draft:{user}:form:/projects/1/publishing/:username": draft % "secret",
        "catherder:draft:999:form:/projects/1/publishing/:username": draft % "secret",
    }
    stays = {
        "catherder:tree": "open",
        f"catherder:draft:{user}:form:/me/profile/:profile": draft % "name",
        f"catherder:draft:{user}:new-task:3": '{"at":"2126-01-01T00:00:00Z","value":{},"marks":[]}',
    }
    page.evaluate("(all) => Object.assign(localStorage, all)", removed | stays)
    page.reload()
    assert removed.keys() & set(page.evaluate("Object.keys(localStorage)")) == set()
    assert stays.items() <= page.evaluate("({ ...localStorage })").items()


@pytest.mark.parametrize(
    ("status", "kind", "body", "words"),
    [
        (403, "text/plain; charset=utf-8", sandboxed_peers._REFUSAL.decode(), "sandboxes"),
        (403, "text/html", "<!doctype html>", "The portal refused this."),
        (413, "text/html", "<html>of a proxy</html>", "too long"),
        (429, "text/html", "<!doctype html>", "too many requests"),
        (503, "text/html", "<!doctype html>", "unavailable"),
    ],
)
def test_r5_the_true_reason_is_said(
    portal: UpPortal, sign_in: SignIn, status: int, kind: str, body: str, words: str
) -> None:
    page = sign_in(portal)
    page.wait_for_function("window.catherder?.drafts")
    said = page.evaluate(
        """([status, kind, body]) => window.catherder.drafts.faultOf(
          { status, responseText: body, getResponseHeader: () => kind })""",
        [status, kind, body],
    )
    assert words in said and "kept" in said
    assert "logged in or out" not in said and "internal error" not in said


#: Into every form of a page that is sent to the portal; what is in its fields then, by form and field.
TYPE = """(write) => {
  const by = { number: "3", date: "2031-01-02", time: "10:15", email: "ann@example.com" };
  const others = "[type=hidden], [type=radio], [type=checkbox], [type=search], [type=file]";
  const typed = `textarea, input:not(${others})`;
  const isHidden = (part) => part && getComputedStyle(part).display === "none";  // of another kind of task
  const forms = [...document.querySelectorAll("main form[method=post]")];
  const fields = forms.flatMap((form) => [...form.elements]).filter((one) =>
    one.name && one.matches(typed) && !one.readOnly && !one.disabled && !isHidden(one.closest(".for-task")));
  const isSecret = (field) => field.type === "password" || /(secret|passw|token|code|chat)/.test(field.name)
    || field.name === "url" && location.pathname.endsWith("/notifications/");
  for (const field of write ? fields : []) {
    field.value = isSecret(field) ? "whisper" : by[field.type] || "by hand";
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  return Object.fromEntries(fields.map((field) => {
    const path = new URL(field.form.getAttribute("action") || location.pathname, location.href).pathname;
    return [`${path.replaceAll(/[0-9]+/g, "N")} ${field.name}`, field.value];
  }));
}"""
#: The forms of a page into which something may be typed: whether they have a draft, and under which key.
DRAFTS = """(() => {
  const others = "[type=hidden], [type=radio], [type=checkbox], [type=search], [type=file], [type=password]";
  const typed = `textarea, input:not(${others}, [autocomplete=one-time-code])`;
  const forms = [...document.querySelectorAll("main form[method=post]")]
    .filter((form) => [...form.elements].some((field) => field.name && field.matches(typed)));
  return forms.map((form) => {
    const path = new URL(form.getAttribute("action") || location.pathname, location.href).pathname;
    return [form.dataset.draft || "", path];
  });
})()"""
CHAT = "The URL of a chat is a secret: whoever has it can write there."
SECRET = "A secret."
#: What is not kept, and why.
NOT_KEPT = {
    "/me/notifications/ chat": CHAT,
    "/projects/N/notifications/ url": CHAT,
    "/me/working-hours/ url": "The URL of a calendar is a secret: whoever has it can read it.",
    "/projects/N/remove/ name": "It confirms that this project is meant, and is typed anew each time.",
    "/projects/N/publishing/ username": "It belongs to a secret.",
    "/projects/N/publishing/ known_hosts": "It belongs to a secret.",
    "/projects/N/publishing/ api_token": SECRET,
    "/projects/N/publishing/ secret": SECRET,
    "/login/again/ password": SECRET,
    "/me/password/ oldpassword": SECRET,
    "/me/password/ password1": SECRET,
    "/me/password/ password2": SECRET,
}


def test_r5_each_form_of_each_page_keeps_what_is_typed_or_says_why_not(
    browser: Browser, seeded: tuple[WebServer, dict[str, Any]]
) -> None:
    """A new form is covered as soon as its page has an address."""
    portal, told = seeded
    context = browser.new_context()
    address = f"http://{portal.address}"
    context.add_cookies([{"name": "sessionid", "value": told["sessions"]["admin"], "url": address}])
    page = context.new_page()
    kept: set[str] = set()
    lost: dict[str, str] = {}
    secrets: set[str] = set()
    for path in dict.fromkeys(path for path, status in told["paths"]["admin"] if status == 200):
        try:
            page.goto(address + path, wait_until="domcontentloaded")
        except PlaywrightError:  # a download
            continue
        if not (typed := page.evaluate(TYPE, True)):
            continue
        secrets |= {name for name, value in typed.items() if value == "whisper"}
        assert "whisper" not in page.evaluate("JSON.stringify(localStorage)"), path
        forms = [tuple(one) for one in page.evaluate(DRAFTS)]
        assert all(name for name, _ in forms), f"Which draft, or none? {path}: {forms}"
        named = [one for one in forms if one[0] != "none"]
        assert len(named) == len(set(named)), f"Forms with one draft: {path}: {named}"
        page.goto(address + path, wait_until="domcontentloaded")
        offered = page.locator("#draft-note [data-draft=restore]:visible")
        if offered.count():  # beside what the URL fills in
            offered.click()
        restored = page.evaluate(TYPE, False)
        kept |= {name for name in typed if restored.get(name) == typed[name]}
        lost |= {name: path for name in typed if restored.get(name) != typed[name]}
        page.evaluate("localStorage.clear()")
    context.close()
    assert len(kept) > 20
    assert {name: path for name, path in lost.items() if name not in NOT_KEPT} == {}
    assert NOT_KEPT.keys() - lost.keys() == set()
    assert NOT_KEPT.keys() & kept == set()
    assert {name for name, why in NOT_KEPT.items() if why in (CHAT, SECRET)} <= secrets
