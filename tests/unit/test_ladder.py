"""The ladder of a question as a pure model: presets, own rungs, when each is due (SPEC Q3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tasks_app.core.errors import BadInput
from tasks_app.core.ladder import PRESETS, RungAction, RungRule, ladder_from
from tasks_app.core.working_hours import Schedule

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY_16 = datetime(2026, 11, 27, 15, tzinfo=UTC)


def test_by_default_those_asked_are_reminded_and_then_everybody_is_asked() -> None:
    """Q3: after 4 and 8 working hours; then it waits."""
    rungs = ladder_from(())
    assert [(one.action, one.after) for one in rungs] == [
        (RungAction.REMIND, timedelta(hours=4)), (RungAction.EVERYBODY, timedelta(hours=8)),
    ]  # fmt: skip
    due = [one.due(FRIDAY_16, [Schedule(BERLIN)]).astimezone(BERLIN) for one in rungs]
    assert [f"{at:%a %H}" for at in due] == ["Mon 11", "Mon 15"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_ladder(name: str) -> None:
    """Q3: patient, brisk, overnight, wait."""
    assert ladder_from([name]) == ladder_from(PRESETS[name]) or name == "wait"
    assert len(ladder_from([name])) == len(PRESETS[name])


def test_overnight_counts_the_hours_of_the_clock() -> None:
    """Q3: it may disturb at night, because the project says so."""
    due = [one.due(FRIDAY_16, [Schedule(BERLIN)]) for one in ladder_from(["overnight"])]
    assert due == [FRIDAY_16 + timedelta(hours=hours) for hours in (1, 3, 8)]


def test_a_rung_that_ends_the_question_is_the_last_one_and_knows_its_name() -> None:
    """Q3: a person reads by which rule nobody was asked any more."""
    assert [(one.ends, one.name) for one in ladder_from(["overnight"])][1:] == [
        (False, "overnight"), (True, "overnight"),
    ]  # fmt: skip
    last = ladder_from(["remind after 1h", "let  the agent decide after 20h"])[-1]
    assert (last.action, last.name) == (RungAction.AGENT_DECIDES, "let the agent decide after 20h")


def test_own_rungs_are_read() -> None:
    """Q3."""
    assert ladder_from([" remind after 90m ", "everybody  after 2 h at any hour"]) == (
        RungRule(RungAction.REMIND, timedelta(minutes=90)),
        RungRule(RungAction.EVERYBODY, timedelta(hours=2), at_any_hour=True),
    )


@pytest.mark.parametrize(
    "lines",
    [
        ["hasty"], ["ask after 4h"], ["remind after 0h"], ["remind after 721h"], ["remind after 4d"],
        ["remind after 4h", "everybody after 4h"], ["brisk", "remind after 4h"], ["remind after 4h\n"] * 11,
        ["let the agent decide after 2h", "remind after 4h"], ["finish without after 4h"],
    ],
)  # fmt: skip
def test_what_is_no_ladder_is_refused(lines: list[str]) -> None:
    """Q3."""
    with pytest.raises(BadInput):
        ladder_from(lines)
