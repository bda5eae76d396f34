"""The interaction threshold (SPEC H1): a whole number from 0 to 5, and what each means."""

from __future__ import annotations

from tasks_app.config.faults import shown
from tasks_app.core.errors import BadInput

LOWEST = 0
HIGHEST = 5
#: That of a new project, until its cat-herder.yaml or its settings say otherwise: an agent that works in
#: somebody's own repository for the first time asks.
NEW_PROJECT = 3
#: What each threshold means, in a sentence. The guide says more, and begins with the same words.
LEVELS = {
    0: "Never asks; decides everything by itself.",
    1: "Asks only if every possible way forward would be wrong or cannot be undone.",
    2: "Asks when blocked, and before anything destructive.",
    3: "Asks about the few decisions that shape the result.",
    4: "Asks about every significant decision and vague requirement.",
    5: "Asks about any ambiguity, with the options laid out.",
}
WANTED = f"must be a whole number from {LOWEST} to {HIGHEST}"


def threshold_fault(value: object) -> str | None:
    """Return what is wrong with `value` as a threshold, as the rest of a sentence; None when nothing is."""
    # bool is an int to Python, but `true` is not a level.
    if isinstance(value, int) and not isinstance(value, bool) and LOWEST <= value <= HIGHEST:
        return None
    return f"{WANTED}, not {shown(value)}"


def threshold_from_text(text: str, *, where: str) -> int:
    """Return the threshold that a person typed into a form or a command line. Raises `BadInput`."""
    digits = {str(level): level for level in range(LOWEST, HIGHEST + 1)}
    if (typed := text.strip()) not in digits:
        raise BadInput(f"the threshold {WANTED}, not {shown(typed)}", where=where)
    return digits[typed]


def resolve_threshold(
    *, explicit: int | None, task: int | None, project: int | None, installation: int
) -> int:
    """Return the threshold in effect: the most specific one that is set (flag or form, task, project)."""
    for chosen in (explicit, task, project):
        if chosen is not None:
            return chosen
    return installation
