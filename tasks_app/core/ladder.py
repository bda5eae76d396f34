"""The ladder of a question: what happens if nobody answers, and when (SPEC Q3). The time is passed in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from tasks_app.core.errors import BadInput
from tasks_app.core.working_hours import Schedule, working_until


class RungAction(StrEnum):
    """What a rung does. After the last one the question waits, unless that one ends it."""

    #: The question is put to people: always the first rung.
    ASK = "ask"
    #: Those who are asked get one more message.
    REMIND = "remind"
    #: From then on it is asked of all who may answer, and they get a message.
    EVERYBODY = "everybody"
    #: Nobody is asked any more: the agent decides by itself. Only where the project allows it.
    AGENT_DECIDES = "agent_decides"
    #: Likewise, and the agent goes on with what it recommended.
    RECOMMENDED = "recommended"


@dataclass(frozen=True)
class RungRule:
    """`after`: how long the question has waited, in hours in which somebody works of those it waits for.

    At any hour: the hours of the clock count instead, and the message also comes in quiet hours.
    """

    action: RungAction
    after: timedelta
    at_any_hour: bool = False
    #: What people call it: the name of its ladder, or the line that says it.
    name: str = field(default="", compare=False)

    @property
    def ends(self) -> bool:
        """Whether it ends the question without an answer."""
        return self.action in ENDINGS

    def due(self, asked: datetime, schedules: Sequence[Schedule]) -> datetime:
        """Return when the rung is due for a question put to people who work so; to nobody: by the clock."""
        if self.at_any_hour or not schedules:
            return asked + self.after
        return working_until(asked, self.after, schedules)


ENDINGS = (RungAction.AGENT_DECIDES, RungAction.RECOMMENDED)
DEFAULT = ("remind after 4h", "everybody after 8h")
PRESETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "patient": ("remind after 8h", "remind after 16h", "everybody after 24h"),
        "brisk": ("remind after 1h", "everybody after 2h"),
        "overnight": (
            "remind after 1h at any hour",
            "everybody after 3h at any hour",
            "take the recommended option after 8h at any hour",
        ),
        "wait": (),
    }
)
MOST_RUNGS = 10
#: The longest time of a rung, in hours: a quarter of a year of eight hours a day.
MOST_HOURS = 720
_ACTIONS = {
    "remind": RungAction.REMIND,
    "everybody": RungAction.EVERYBODY,
    "let the agent decide": RungAction.AGENT_DECIDES,
    "take the recommended option": RungAction.RECOMMENDED,
}
_RUNG = re.compile(rf"({'|'.join(_ACTIONS)}) +after +([0-9]{{1,5}}) *(m|h)( +at +any +hour)?")
_MINUTES = {"m": 1, "h": 60}


def ladder_from(lines: Sequence[str]) -> tuple[RungRule, ...]:
    """Return the rungs: of a preset if its name is the only line, the default ones without a line.

    Raises BadInput, whose message says which line is not usable.
    """
    name = ""
    if len(lines) == 1 and lines[0].strip() in PRESETS:
        name = lines[0].strip()
        lines = PRESETS[name]
    elif not lines:
        lines = DEFAULT
    if len(lines) > MOST_RUNGS:
        raise BadInput(f"must have at most {MOST_RUNGS} rungs")
    rungs: list[RungRule] = []
    for line in lines:
        rung = _rung_from(line, name)
        if rungs and rungs[-1].ends:
            raise BadInput(f"must end with “{rungs[-1].name}”: nobody is asked after it")
        if rungs and rung.after <= rungs[-1].after:
            raise BadInput(f"must have “{line.strip()[:60]}” later than the rung before it")
        rungs.append(rung)
    return tuple(rungs)


def _rung_from(line: str, name: str) -> RungRule:
    line = " ".join(line.split())
    words = _RUNG.fullmatch(line)
    if not words:
        presets = ", ".join(PRESETS)
        raise BadInput(
            f"must be one of {presets}, or rungs such as “remind after 4h”, “everybody after 8h”, “remind "
            "after 90m at any hour”, and as the last one “let the agent decide after 16h” or “take the "
            f"recommended option after 16h”, not “{line[:60]}”"
        )
    after = timedelta(minutes=int(words[2]) * _MINUTES[words[3]])
    if not timedelta(0) < after <= timedelta(hours=MOST_HOURS):
        raise BadInput(f"must have rungs after at most {MOST_HOURS}h and not at once, not “{line[:60]}”")
    return RungRule(_ACTIONS[words[1]], after, at_any_hour=bool(words[4]), name=name or line)
