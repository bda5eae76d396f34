"""The owner of a question is away: she hands it over with a note, and sees what became of it (Q2, Q6)."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import ASK, SignIn
from tests.portal import PASSWORD, UpPortal

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}}
PEOPLE = """
from django.utils import timezone
project = Project.objects.get(name="sample")
for username in ("olga", "dave"):
    user = User.objects.create_user(username, password={password!r}, first_name=username.title())
    Membership.objects.create(user=user, project=project, role="member")
Question.objects.filter(pk={question}).update(routed_at=timezone.now())
Asked.objects.filter(question={question}).delete()
Asked.objects.create(
    question_id={question}, user=User.objects.get(username="olga"), asked_by="owner", why="owns export/",
    at=timezone.now(),
)
"""


def test_q2_the_owner_hands_over_and_her_deputy_answers_on_the_phone(
    portal: UpPortal, asked: tuple[int, int], sign_in: SignIn
) -> None:
    number = asked[1]
    portal.rows(PEOPLE.format(password=PASSWORD, question=number))
    owner, deputy = sign_in(portal, "olga"), sign_in(portal, "dave", **PHONE)
    deputy.goto(f"{portal.url}/inbox/")
    expect(deputy.locator(f"[data-row='{number}']")).to_have_count(0)
    expect(deputy.locator("#open-questions [data-open]")).to_have_attribute("data-open", "0")

    owner.goto(f"{portal.url}/inbox/")
    card = owner.locator(f"#question-{number}")
    expect(card.locator("[data-asked-user=olga]")).to_contain_text("owns export/")
    card.get_by_text("Hand over…").click()
    card.get_by_label("Person").select_option(label="Dave")
    card.get_by_label("Note for them").fill("I am away until Monday.")
    card.get_by_role("button", name="Hand over", exact=True).click()
    expect(card.locator("[data-asked-user=dave]")).to_contain_text("Olga handed it over")
    expect(card.get_by_role("button", name="Undo")).to_be_visible()

    row = deputy.locator(f"[data-row='{number}']")
    expect(row).to_contain_text("Olga handed it over: I am away until Monday.")
    expect(deputy.locator("#open-questions [data-open]")).to_have_attribute("data-open", "1")
    row.click()
    theirs = deputy.locator(f"#question-{number}")
    expect(theirs.locator(".asked-note")).to_contain_text("I am away until Monday.")
    theirs.get_by_role("radio", name="Comma").check()
    theirs.locator("[name='item-1-other']").fill("customers.csv")
    theirs.get_by_role("button", name="Answer both").click()
    expect(theirs).to_have_attribute("data-state", "answered")

    owner.goto(f"{portal.url}/questions/{number}/")
    expect(card.locator(".outcome")).to_contain_text("by Dave")
    expect(card.locator(".asked-of")).to_contain_text("Olga handed it over")


#: The question is put to its owner alone; after a minute by the clock it is asked of everybody.
LADDER = """
from datetime import timedelta
asked_at = timezone.now() - timedelta(minutes=5)
project.overrides = {{**project.overrides, "ladder": "everybody after 1m at any hour"}}
project.save()
Rung.objects.filter(question={question}).delete()
Question.objects.filter(pk={question}).update(routed_at=asked_at)
"""


def test_q4_the_owner_is_away_her_deputy_answers_and_she_sees_why_on_return(
    own_portal: UpPortal, sign_in: SignIn
) -> None:
    portal = own_portal
    number = portal.rows(ASK)[1]
    portal.rows(PEOPLE.format(password=PASSWORD, question=number))
    owner, deputy = sign_in(portal, "olga"), sign_in(portal, "dave", **PHONE)
    owner.goto(f"{portal.url}/me/working-hours/")
    today = owner.evaluate("new Date().toISOString().slice(0, 10)")
    owner.get_by_label("First day").first.fill(today)
    owner.get_by_label("Last day").first.fill(today)
    owner.get_by_label("Word for it").first.fill("holiday")
    owner.get_by_role("button", name="Save", exact=True).click()
    expect(owner.get_by_text("Saved.")).to_be_visible()

    deputy.goto(f"{portal.url}/questions/{number}/")
    expect(deputy.locator("[data-asked-user=olga]")).to_contain_text(f"away until {today}, holiday")
    deputy.goto(f"{portal.url}/inbox/")
    row = deputy.locator(f"[data-row='{number}']")
    expect(row).to_have_count(0)
    portal.rows(
        PEOPLE.format(password=PASSWORD, question=number).partition("for username")[0]
        + LADDER.format(question=number)
    )
    row.click()  # a worker has put it to everybody
    card = deputy.locator(f"#question-{number}")
    expect(card.locator("[data-ladder]")).to_contain_text("everybody was asked")
    card.get_by_role("radio", name="Comma").check()
    card.locator("[name='item-1-other']").fill("customers.csv")
    card.get_by_role("button", name="Answer both").click()
    expect(card).to_have_attribute("data-state", "answered")

    owner.goto(f"{portal.url}/inbox/?state=answered")
    owner.locator(f"[data-row='{number}']").click()
    seen = owner.locator(f"#question-{number}")
    expect(seen.locator(".outcome")).to_contain_text("by Dave")
    expect(seen.locator("[data-climbed]")).to_contain_text("Olga was asked (owns export/).")
    expect(seen.locator("[data-climbed]")).to_contain_text("everybody was asked")


#: Nobody answers, and the rule's time has come.
LATE = """
from datetime import timedelta
from django.utils import timezone
from tasks_app.core.ladder import RungAction
project = Project.objects.get(name="sample")
project.overrides = {{**project.overrides, "ladder_may_end": True}}
project.save()
question = Question.objects.get(pk={question})
item = dict(question.items[0])
comma = {{"label": "Comma (Recommended)", "description": "As in RFC 4180."}}
item["options"] = [comma, {{"label": "Semicolon"}}]
Question.objects.filter(pk=question.pk).update(items=[item], routed_at=timezone.now())
Rung.objects.filter(question=question).delete()
now = timezone.now()
Rung.objects.create(question=question, position=0, action="ask", due=now, done_at=now, outcome="done")
Rung.objects.create(question=question, position=1, action="recommended", name="overnight", due=now)
"""


def test_q3_a_rule_ended_the_question_and_who_returns_sees_why_and_undoes_it(
    portal: UpPortal, asked: tuple[int, int], sign_in: SignIn
) -> None:
    task, number = asked
    portal.rows(LATE.format(question=number))
    owner = sign_in(portal)
    owner.goto(f"{portal.url}/notices/")
    notice = owner.get_by_role("link", name="the rule “overnight” took “Comma")
    expect(notice.first).to_be_visible()
    notice.first.click()
    card = owner.locator(f"#question-{number}")
    expect(card).to_have_attribute("data-state", "unanswered")
    expect(card).to_contain_text("Nobody chose this")
    owner.wait_for_timeout(1000)  # the button of an answer counts down; this one stays
    card.get_by_role("button", name="Undo").click()
    expect(card.get_by_role("button", name="Undo")).to_have_count(0)
    owner.goto(
        f"{portal.url}/tasks/{task}/"
    )  # with the question itself or the one that asks it again, and what the agent may have asked meanwhile
    expect(owner.locator("[data-state=open]", has_text="Comma or semicolon?")).to_be_visible()
