"""More of the question card in a real browser: earlier answers, decisions, layout, and the log beside it
(H5, D2, D4, D6).
"""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import APPROVAL, ASK, SignIn, say
from tests.e2e.held_requests import hold, newest
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

#: Another question of the same run, and the entries of both in the log.
SECOND = """
from django.utils import timezone
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.history.events.blocks import question_payload
first = Question.objects.get(pk={number})
second = Question.objects.create(
    task=first.task, step=first.step, run=first.run, number=2, way=first.way, tool_use_id="u",
    items=first.items, asked_at=timezone.now(),
)
events = [NewEvent(EventKind.QUESTION, question_payload(one)) for one in (first, second)]
append(first.run, events, seq=first.run.next_seq())
result = [second.pk]
"""


#: The question becomes the approval of a change to a file with long lines.
EDIT = """
line = " ".join(f"word {{number}}" for number in range(60))
Question.objects.filter(pk={number}).update(
    kind="approval", items=[{{"question": "Allow this edit?"}}],
    evidence=[{{"kind": "diff", "title": "a.md", "text": "@@ -1 +1 @@\\n-short\\n+" + line}}],
)
"""


def test_a_result_joins_its_call_though_it_comes_later(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, _ = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    say(portal, task, ("tool_use", {"id": "c", "name": "Bash", "input": {"command": "make lint"}}))
    call = page.locator("[data-call=c]")
    expect(call).to_contain_text("$ make lint")
    say(portal, task, ("tool_result", {"tool_use_id": "c", "text": "line too long", "is_error": True}))
    expect(call).to_contain_text("line too long")
    expect(page.locator("#log-box .entry")).to_have_count(1)


#: The call is approved, and made by another run.
APPROVED = """
from django.utils import timezone
from tasks_app.history.events.blocks import append_one
admin = User.objects.get(username="admin")
Question.objects.filter(pk={number}).update(
    state="answered", verdict="approved", answered_by=admin, answered_via="web", answered_at=timezone.now()
)
question = Question.objects.get(pk={number})
Change.objects.create(task=question.task, kind="question")
append_one(question.run, EventKind.ANSWER, {{"outcome": "Approved", "by": "Ann", "via": "web", "number": 1}})
"""
MADE = """
from uuid import uuid4
from tasks_app.history.events.blocks import append_one
step = Question.objects.get(pk={number}).step
run = Run.objects.create(step=step, number=2, reason="approved", session_id=uuid4())
append_one(run, EventKind.TOOL_RESULT, {{"tool_use_id": "t", "text": "it is deployed", "is_error": False}})
"""


def test_an_approved_call_says_so_at_once_and_its_result_stands_below_the_approval(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, number = asked
    portal.rows(APPROVAL.format(number=number))
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    say(portal, task, ("tool_use", {"id": "t", "name": "Bash", "input": {"command": "make deploy"}}))
    outcome = page.locator("[data-call=t] .call-outcome")
    expect(outcome).to_have_text("waits for approval")
    portal.rows(APPROVED.format(number=number))
    expect(outcome).to_have_text(re.compile("approved by"))
    portal.rows(MADE.format(number=number))
    entries = page.locator("#log-box .part > li")
    expect(entries.last).to_contain_text(re.compile(r"\$ make deploy\s+it is deployed"))
    expect(entries).to_contain_text(
        ["make deploy", "Approved by", "run 2, after an approval", "it is deployed"]
    )


def test_keys_count_while_cards_are_on_their_way(portal: UpPortal, sign_in: SignIn, inbox: list[int]) -> None:
    """The selection moves at once: it does not depend on a card that may still be fetched."""
    page = sign_in(portal)
    page.goto(f"{portal.url}/inbox/")
    one, two, three = (page.locator(f"#question-{number}") for number in inbox)
    page.keyboard.press("k")
    expect(one).to_be_focused()
    held = hold(page, re.compile(f"question={inbox[2]}&part=question"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(f"#inbox-row-{inbox[2]}")).to_have_attribute("aria-current", "true")
    expect(one).to_be_visible()
    newest(page, held).continue_()
    expect(three).to_be_focused()
    page.keyboard.press("k")
    expect(two).to_be_focused()


def test_boxes_are_walked_with_the_arrows(portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]) -> None:
    _, number = asked
    portal.rows(
        f"question = Question.objects.get(pk={number})\n"
        "question.items = [{**question.items[0], 'multiSelect': True}]\nquestion.save()"
    )
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    boxes = page.get_by_role("checkbox")
    page.locator(f"#question-{number}").focus()
    for key in ("ArrowDown", "Space", "ArrowDown", "Space", "ArrowUp"):
        page.keyboard.press(key)
    expect(boxes.nth(0)).to_be_focused()
    expect(boxes.nth(0)).to_be_checked()
    expect(boxes.nth(1)).to_be_checked()
    page.keyboard.press("2")
    expect(boxes.nth(1)).not_to_be_checked()


def test_a_refusal_goes_when_what_it_asks_for_is_chosen(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    """“Choose at least one answer” stayed below the answer that had been chosen."""
    task, number = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    card = page.locator(f"#question-{number}")
    card.get_by_role("radio", name="Comma").check()
    card.locator("[name^=item-1]").fill("customers.csv")
    card.get_by_label("whole project").check()
    remembered = card.locator(".remember-item [type=checkbox]")
    for place in range(2):
        remembered.nth(place).uncheck()
    card.get_by_role("button", name="Answer both and resume").click()
    refusal = card.locator(".remember .refusal")
    expect(refusal).to_be_visible()
    remembered.first.check()
    expect(refusal).to_have_count(0)


def test_no_answer_is_another_button_and_asks_once(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, number = asked
    page, other = sign_in(portal), sign_in(portal)
    for one in (page, other):
        one.goto(f"{portal.url}/tasks/{task}/")
    typed = other.locator(f"#question-{number}")
    typed.locator("[name=notes]").fill("half an answer")
    typed.get_by_label("whole project").check()
    typed.locator(".remember-item [type=checkbox]").first.check()
    typed.locator("[name^=statement]").first.fill("A prepared sentence, which is no remark.")
    card = page.locator(f"#question-{number}")
    card.get_by_text("Skip…").click()
    card.get_by_label("Remark for the agent").fill("Nobody knows.")
    portal.rows(f"Change.objects.create(task_id={task}, kind='question')")
    page.reload()
    card.get_by_text("Skip…").click()
    expect(card.get_by_label("Remark for the agent")).to_have_value("Nobody knows.")
    card.get_by_role("button", name="Let the agent decide").click()
    expect(card).to_contain_text("Skipped by admin")
    late = other.locator(f"#question-{number}")
    expect(late).to_contain_text("Skipped by admin")
    expect(late.locator(".kept textarea")).to_have_value("half an answer")


def test_in_the_log_each_question_stands_out_until_it_is_answered(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    """An answer to the first of two made the second look answered as well."""
    task, number = asked
    (other,) = portal.rows(SECOND.format(number=number))
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    entries = page.locator(".entry-question")
    expect(entries).to_have_count(2)
    expect(page.locator(".entry-question.is-open")).to_have_count(2)
    card = page.locator(f"#question-{number}")
    card.get_by_text("Skip…").click()
    card.get_by_role("button", name="Let the agent decide").click()
    expect(card).to_contain_text("1 more question before the agent resumes")
    expect(page.locator(".entry-answer")).to_be_visible()
    expect(page.locator(".entry-question.is-open")).to_have_attribute("data-asked", str(other))
    colours = "all => all.map(one => getComputedStyle(one).backgroundColor)"
    first, second = page.locator(".entry-question .entry-body").evaluate_all(colours)
    assert first != second


@pytest.mark.parametrize("width", [390, 1440])
def test_the_diff_of_an_approval_wraps(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int], width: int
) -> None:
    """What one approves must not be out of sight at the right."""
    task, number = asked
    portal.rows(EDIT.format(number=number))
    page = sign_in(portal)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{portal.url}/tasks/{task}/")
    lines = page.locator(f"#question-{number} .evidence .diff-lines")
    expect(lines).to_contain_text("word 59")
    assert lines.evaluate("one => one.scrollWidth <= one.clientWidth")


@pytest.mark.parametrize("width", [390, 1440])
def test_the_preview_of_an_option_is_not_cut(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int], width: int
) -> None:
    task, number = asked
    portal.rows(
        f"question = Question.objects.get(pk={number})\n"
        "question.items[0]['options'][0]['preview'] = 'Error: ' + 'the file was opened as text ' * 9\n"
        "question.save()"
    )
    page = sign_in(portal)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{portal.url}/tasks/{task}/")
    preview = page.locator(f"#question-{number} .preview")
    assert preview.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_without_scripts_a_plan_can_be_sent_back(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    _, number = asked
    portal.rows(APPROVAL.replace("approval", "plan").format(number=number))
    page = sign_in(portal, java_script_enabled=False)
    page.goto(f"{portal.url}/questions/{number}/")
    page.get_by_text("Send back…").click()
    page.get_by_role("button", name="Send plan back").click()
    expect(page.locator(".notes .refusal")).to_contain_text("Enter your comments")
    page.get_by_label("Comments (required)").fill("Smaller steps.")
    page.get_by_role("button", name="Send plan back").click()
    expect(page.locator(".card")).to_contain_text("Sent back by admin")
    expect(page.locator(".card")).to_contain_text("Smaller steps.")


#: The questions get words that no other test has answered; then an earlier one with the same items, answered,
#: and one like it.
EARLIER = """
from datetime import timedelta
from django.utils import timezone
from tasks_app.services.questions.earlier_answers import index_answer
new = Question.objects.get(pk={number})
new.items[0]["question"] = "Comma or semicolon in file {number}?"
new.items[1]["question"] = "What name has file {number}?"
new.save()
result = []
for place, text in enumerate([new.items[0]["question"], "Is it a semicolon or a comma in file {number}?"]):
    items = [{{**new.items[0], "question": text}}, new.items[1]]
    row = Question.objects.create(
        task=new.task, step=new.step, run=new.run, number=10 + place, way="AskUserQuestion",
        tool_use_id=f"e{{place}}", items=items, asked_at=timezone.now(), state="answered",
        answered_at=timezone.now() - timedelta(days=40), answered_by=User.objects.get(username="admin"),
        answered_via="web",
        answers={{text: "Semicolon", new.items[1]["question"]: "customers.csv\\n" + "long " * {words}}},
    )
    index_answer(row)
    result.append(row.pk)
"""


def test_d4_one_key_fills_in_the_nearest_earlier_answer(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    _, question = asked
    earlier, latest = portal.rows(EARLIER.format(number=question, words=1))
    portal.rows(f"Question.objects.filter(pk={earlier}).update(notes='With a header line.')")
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{question}/")
    card = page.locator(f"#question-{question}")
    expect(card.get_by_role("heading", name="Asked before")).to_have_count(2)  # to each question on the card
    expect(card.get_by_text("The same question.").first).to_be_visible()
    page.keyboard.press("r")
    expect(card.get_by_role("radio", name="Semicolon")).to_be_checked()
    expect(card.locator("[name=taken_from]")).to_have_value(str(earlier))
    expect(card.locator("[name=notes]")).to_have_value("With a header line.")
    page.keyboard.press("r")  # the next question on the card: the latest answer to it came from another task
    expect(card.locator("[name=item-1-other]")).to_have_value(re.compile("customers.csv"))
    expect(card.locator("[name=taken_from]")).to_have_value(str(latest))
    expect(card.get_by_text("Filled in. Nothing is sent yet.").first).to_be_visible()
    page.reload()
    expect(card.get_by_role("radio", name="Semicolon")).to_be_checked()
    expect(card.locator("[name=taken_from]")).to_have_value(str(latest))
    card.locator(".card-buttons > .primary").first.click()
    expect(card.get_by_text("As in task Export customers.")).to_be_visible()


#: A question of a project that has no other.
FIRST = """
import uuid
from django.utils import timezone
project = Project.objects.create(name="silent-{mark}", source="/nowhere", branch="main")
task = Task.objects.create(
    project=project, slug="a", title="Export", pipeline="default", phase="waiting_for_input",
    created_by=User.objects.get(username="admin"), queued_at=timezone.now(),
)
step = Step.objects.create(task=task, position=1, name="plan", config={{}}, phase="waiting_for_input")
run = Run.objects.create(step=step, number=1, reason="first", outcome="asked", session_id=uuid.uuid4())
question = Question.objects.create(
    task=task, step=step, run=run, number=1, way="AskUserQuestion", tool_use_id="t",
    items=[{{"question": "Now or later?", "header": "When", "options": [{{"label": "Now"}}]}}],
    asked_at=timezone.now(),
)
Change.objects.create(task=task, kind="question")
result = [question.pk, task.pk]
"""


def test_a_question_that_reaches_an_empty_inbox_comes_with_its_row(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    mark = uuid4().hex[:8]
    page.goto(f"{portal.url}/inbox/?project=silent-{mark}")
    expect(page.get_by_role("heading", name="No matching questions")).to_be_visible()
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    question, task = portal.rows(FIRST.format(mark=mark))
    card = page.locator(f"#question-{question}")
    expect(card).to_be_visible()
    expect(page.locator(f"#inbox-row-{question}")).to_have_attribute("aria-current", "true")
    expect(page).to_have_url(re.compile(f"question={question}"))
    assert not [url for url in fetched if "part=question" in url]
    page.keyboard.press("j")
    page.keyboard.press("1")
    expect(card.get_by_role("radio", name="Now")).to_be_checked()
    # One that is shown already stays: the list is fetched without a card.
    with page.expect_request(re.compile("part=list")) as later:
        portal.rows(f"Change.objects.create(task_id={task}, kind='question')")
    assert "first" not in later.value.url
    expect(card.get_by_role("radio", name="Now")).to_be_checked()


#: One question that was asked and answered before, and one more that is open; the number of the open one.
ASKED_BEFORE = """
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.models import Channel, Decision
from tasks_app.permissions import Principal
Decision.objects.all().delete()
admin = Principal.unrestricted(User.objects.get(username="admin"))
options = [
    {{"label": "Half up (Recommended)", "description": ""}},
    {{"label": "Half to even", "description": "As banks do."}},
]
rounding = {{"question": "How are half cents rounded?", "header": "Rounding", "options": options}}
name = {{"question": "Who signs the invoices?", "header": "Name", "options": []}}
earlier, asked = (Question.objects.get(pk=number) for number in {numbers})
earlier.items, asked.items = [rounding], {items}
earlier.save(), asked.save()
answer_question(earlier, Reply.to(earlier, "Half to even"), by=admin, via=Channel.WEB)
result = asked.pk
"""


DECIDED = "from tasks_app.models import Decision\nresult = [one.statement for one in Decision.objects.all()]"


def asked_before(portal: UpPortal, items: str = "[rounding]") -> int:
    """Ask a question again; its number."""
    numbers = [portal.rows(ASK)[1] for _ in range(2)]
    return int(portal.rows(ASKED_BEFORE.format(numbers=numbers, items=items)))


def test_d2_a_prepared_statement_says_what_is_chosen_until_it_is_edited(
    portal: UpPortal, sign_in: SignIn
) -> None:
    number = asked_before(portal)
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    card = page.locator(f"#question-{number}")
    statement = card.get_by_label("Decision")
    card.get_by_role("radio", name="Half up").check()
    card.get_by_role("radio", name="whole project").check()
    expect(statement).to_have_value("How are half cents rounded? Half up")  # without the recommendation
    page.locator("body").press("r")  # takes the earlier answer
    expect(card.get_by_role("radio", name="Half to even")).to_be_checked()
    expect(statement).to_have_value("Half to even: As banks do.")

    page.reload()
    expect(statement).to_have_value("Half to even: As banks do.")
    card.get_by_role("radio", name="Half up").check()
    expect(statement).to_have_value("How are half cents rounded? Half up")
    card.get_by_role("radio", name="Something else").check()
    card.get_by_role("textbox", name="Something else: your answer").fill("Down")
    expect(statement).to_have_value("How are half cents rounded? Down")
    card.get_by_role("textbox", name="Something else: your answer").fill("Two blanks\n  in `a  b` stay")
    expect(statement).to_have_value("Two blanks in `a  b` stay")

    statement.fill("Half cents are cut off.")
    page.reload()
    expect(statement).to_have_value("Half cents are cut off.")
    card.get_by_role("radio", name="Half up").check()
    expect(statement).to_have_value("Half cents are cut off.")


def test_d2_each_question_of_a_card_has_a_statement_and_an_earlier_answer_of_its_own(
    portal: UpPortal, sign_in: SignIn
) -> None:
    number = asked_before(portal, "[name, rounding]")
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    card = page.locator(f"#question-{number}")
    expect(card.locator(".item[data-item='0'] .asked-before")).to_have_count(0)
    card.get_by_role("link", name="Use this answer").click()
    expect(card.get_by_role("radio", name="Half to even")).to_be_checked()
    expect(card.locator("[name=item-0-other]")).to_have_value("")
    card.locator("[name=item-0-other]").fill("Grace")
    card.get_by_role("radio", name="whole project").check()
    for header in ("Name", "Rounding"):
        expect(card.get_by_role("checkbox", name=header)).not_to_be_checked()
    card.get_by_role("checkbox", name="Rounding").check()
    expect(card.locator("[name=statement-0]")).not_to_be_visible()
    expect(card.locator("[name=statement-1]")).to_have_value("Rounding: Half to even: As banks do.")
    page.reload()
    expect(card.get_by_role("checkbox", name="Name")).not_to_be_checked()
    expect(card.get_by_role("checkbox", name="Rounding")).to_be_checked()
    expect(card.get_by_role("radio", name="whole project")).to_be_checked()
    card.get_by_role("button", name="Answer both and resume").click()
    expect(card).to_contain_text("Answered by admin")
    expect(card).to_contain_text("As in task")
    assert portal.rows(DECIDED) == ["Rounding: Half to even: As banks do."]
    expect(card).to_contain_text("D-1")
    assert page.evaluate("localStorage.length") == 0


#: The answer of one item has become a decision.
IS_DECIDED = """
from tasks_app.services.decisions.changes import store
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.questions.earlier_answers import question_key
from tasks_app.services.decisions.citing import with_one_item
question = Question.objects.get(pk={number})
item = next(one for one in question.items if one["options"])
store(
    question.task.project, DecisionContent("Half cents are rounded up."),
    by=User.objects.get(username="admin"),
    question_key=question_key(with_one_item(question, item)), answers={{item["question"]: "Half up"}},
)
"""


@pytest.mark.parametrize("items", ["[rounding]", "[name, rounding]"])
def test_d2_d6_the_statement_that_replaces_a_decision_is_shown_and_can_be_edited(
    portal: UpPortal, sign_in: SignIn, items: str
) -> None:
    number = asked_before(portal, items)
    portal.rows(IS_DECIDED.format(number=number))
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    card = page.locator(f"#question-{number}")
    if len(items) > len("[rounding]"):
        card.locator("[name=item-0-other]").fill("Grace")
    statements = card.locator("textarea[name^=statement]:visible")
    card.get_by_role("radio", name="Half to even").check()
    expect(statements).to_have_count(0)
    card.get_by_role("radio", name="My answer replaces it").check()
    expect(statements).to_have_count(1)
    expect(statements).to_have_value(re.compile("^(Rounding: )?Half to even: As banks do[.]$"))
    # The form says what will be stored: it holds where the replaced one did.
    expect(card.get_by_role("radio", name="whole project")).to_be_checked()
    statements.fill("Half cents are rounded to even.")
    page.reload()
    expect(statements).to_have_count(1)
    expect(statements).to_have_value("Half cents are rounded to even.")
    card.locator(".card-buttons > .primary").click()
    expect(card).to_contain_text("Answered by admin")
    said = "result = [[one.statement, one.state] for one in Decision.objects.order_by('number')]"
    assert portal.rows(f"from tasks_app.models import Decision\n{said}") == [
        ["Half cents are rounded up.", "superseded"],
        ["Half cents are rounded to even.", "active"],
    ]
