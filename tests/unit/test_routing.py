"""Q1: whom a question is put to, as a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks_app.config.code_owners import CodeOwners
from tasks_app.config.routing import Asking, AskRule, Directory, OnCall, Person, route
from tasks_app.core.calendars import Shift

ANN = Person(1, "ann", "ann@example.org")
BOB = Person(2, "Bob", "bob@example.org")
CAT = Person(3, "cat")
EVERYBODY = Directory((ANN, BOB, CAT), {"payments": [2, 3, 9], "empty": [9]})
QUESTION = Asking("clarification", "implement", ("Rounding",), ("payments/x.py",), ("docs/a.md",))
OWNERS = CodeOwners.parse("* @ann\n/payments/ @acme/payments\n/docs/ @stranger\n", "github")


def rule(people: str | list[str], **conditions: str | list[str]) -> AskRule:
    return AskRule.model_validate({"people": people, **conditions})


def on_call(title: str, *people: str) -> OnCall:
    now = datetime(2026, 11, 28, tzinfo=UTC)
    return OnCall(Shift(now, now, people, title), "on call until 18:00")


def asked(
    question: Asking = QUESTION, directory: Directory = EVERYBODY, **sources: Any
) -> list[tuple[str, str]]:
    found = route(question, directory, **sources)
    return [(one.person.username, one.asked_by) for one in found]


def test_without_anything_it_is_asked_of_all() -> None:
    """Q1"""
    assert asked() == []


def test_the_first_source_that_names_somebody_wins() -> None:
    """Q1"""
    sources: dict[str, Any] = {
        "chosen": ["ann"],
        "rules": [rule("bob@example.org")],
        "owners": OWNERS,
        "on_call": [on_call("cat")],
        "starter": "Bob",
    }
    expected = [
        [("ann", "task")],
        [("Bob", "rule")],
        [("Bob", "owner"), ("cat", "owner")],
        [("cat", "on_call")],
        [("Bob", "starter")],
        [],
    ]
    for name, people in zip([*sources, None], expected, strict=True):
        assert asked(**sources) == people
        if name:
            del sources[name]
            sources = dict(sources)


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({}, True),
        ({"kind": "clarification"}, True),
        ({"kind": ["plan", "approval"]}, False),
        ({"step": ["plan", "implement"]}, True),
        ({"step": "plan"}, False),
        ({"header": "rounding"}, True),
        ({"header": "Names"}, False),
        ({"paths": "payments/**"}, True),
        ({"paths": "docs/*.md"}, True),
        ({"paths": "web/"}, False),
        ({"kind": "clarification", "paths": "web/"}, False),
    ],
)
def test_a_rule_fits_if_all_of_its_conditions_do(conditions: dict[str, str], matches: bool) -> None:
    """Q1"""
    assert bool(asked(rules=[rule("ann", **conditions)])) is matches


@pytest.mark.parametrize(
    ("name", "people"),
    [
        ("ANN", ["ann"]),
        ("@ann", ["ann"]),
        ("Ann@Example.org", ["ann"]),
        ("@payments", ["Bob", "cat"]),
        ("@acme/payments", ["Bob", "cat"]),
        ("@payments/other", []),
        ("@empty", []),
        ("@", []),
        ("nobody", []),
    ],
)
def test_people_are_named_in_several_ways(name: str, people: list[str]) -> None:
    """Q1"""
    assert [person.username for person, _ in EVERYBODY.find(name)] == people


def test_the_reason_names_the_group_and_who_was_passed_over() -> None:
    """Q1: people who may not answer are never asked, and the next source says so."""
    found = route(
        QUESTION, EVERYBODY, chosen=["stranger"], rules=[rule("@empty")], owners=OWNERS, starter="ann"
    )
    assert {one.group for one in found} == {"payments"}
    assert {one.why for one in found} == {
        "owns payments/ by CODEOWNERS; the task names stranger, who may not answer"
    }


def test_files_that_the_question_names_count_before_changed_ones() -> None:
    """Q1"""
    owners = CodeOwners.parse("a.py @ann\nb.py @bob\nc.py @stranger\n", "github")
    assert asked(Asking("plan", "plan", (), ("a.py",), ("b.py",)), owners=owners) == [("ann", "owner")]
    assert asked(Asking("plan", "plan", (), ("c.py",), ("b.py",)), owners=owners) == [("Bob", "owner")]


@pytest.mark.parametrize(
    ("shift", "people"),
    [
        (on_call("cat", "ann@example.org", "x@example.org"), ["ann"]),
        (on_call("On call: Bob", "x@example.org"), ["Bob"]),
        (on_call("On Call - Jane Doe - payments"), ["ann"]),
        (on_call("[L1] bob, cat"), ["Bob", "cat"]),
        (on_call("payments on call"), ["Bob", "cat"]),
        (on_call("@payments"), ["Bob", "cat"]),
        (on_call("ann@example.org"), ["ann"]),
        (on_call("stranger", "x@example.org"), []),
        (on_call("annual review"), []),
    ],
)
def test_a_shift_means_its_attendees_or_those_whom_its_title_names(shift: OnCall, people: list[str]) -> None:
    """Q1: a group beside a person is what the person is on call for."""
    directory = Directory((replace(ANN, name="Jane Doe"), BOB, CAT), EVERYBODY.groups)
    found = route(QUESTION, directory, on_call=[shift])
    assert [one.person.username for one in found] == people
    assert {(one.asked_by, one.why) for one in found} <= {("on_call", "on call until 18:00")}


def test_two_shifts_ask_the_people_of_both() -> None:
    """Q1"""
    shifts = [on_call("ann"), on_call("bob"), on_call("ann")]
    assert asked(on_call=shifts) == [("ann", "on_call"), ("Bob", "on_call")]
    found = route(QUESTION, EVERYBODY, on_call=[on_call("stranger")], starter="ann")
    assert found[0].why == "started the task; the on-call calendar names stranger, who may not answer"


NAMES = st.sampled_from(["ann", "bob", "cat", "@one", "@two", "stranger", "ann@example.org", "x@example.org"])
FOLDERS = ["a", "b", "c"]
RULES = st.builds(
    lambda people, kind, step, folder: rule(
        people, kind=kind, step=step, paths=[f"{one}/" for one in folder]
    ),
    st.lists(NAMES, min_size=1, max_size=3),
    st.lists(st.sampled_from(["clarification", "plan"]), max_size=2),
    st.lists(st.sampled_from(["plan", "implement"]), max_size=1),
    st.lists(st.sampled_from(FOLDERS), max_size=2),
)
PATHS = st.lists(st.sampled_from([f"{one}/x.py" for one in FOLDERS]), max_size=2).map(tuple)
QUESTIONS = st.builds(
    Asking,
    st.sampled_from(["clarification", "plan", "approval"]),
    st.sampled_from(["plan", "implement", "test"]),
    st.just(()),
    PATHS,
    PATHS,
)
MEMBERS = st.sets(st.sampled_from(["ann", "bob", "cat"]))
GROUPS = st.dictionaries(st.sampled_from(["one", "two"]), st.sets(st.sampled_from(["ann", "bob", "cat"])))


@settings(max_examples=1000, deadline=None)
@given(
    question=QUESTIONS,
    members=MEMBERS,
    groups=GROUPS,
    chosen=st.lists(NAMES, max_size=2),
    rules=st.lists(RULES, max_size=3),
    owned=st.dictionaries(st.sampled_from(FOLDERS), st.lists(NAMES.filter(lambda n: "@" in n), max_size=2)),
    shifts=st.lists(NAMES, max_size=2),
    starter=st.sampled_from(["", "ann", "stranger"]),
)
def test_random_questions_agree_with_a_plain_model(
    question: Asking,
    members: set[str],
    groups: dict[str, set[str]],
    chosen: list[str],
    rules: Sequence[AskRule],
    owned: dict[str, list[str]],
    shifts: list[str],
    starter: str,
) -> None:
    """Q1: 1,000 random questions."""

    def meant(name: str) -> set[str]:
        if name.startswith("@"):
            return groups.get(name[1:], set()) & members
        return {name.partition("@")[0]} & members if name.partition("@")[2] in ("", "example.org") else set()

    def all_of(names: Sequence[str]) -> set[str]:
        return set().union(*map(meant, names))

    def owners_of(paths: Sequence[str]) -> set[str]:
        return set().union(*(all_of(owned.get(path[0], [])) for path in paths))

    paths = {path[0] for path in (*question.named, *question.changed)}
    in_order = [all_of(chosen)]
    for one in rules:
        fits = (
            (not one.kind or question.kind in one.kind)
            and (not one.step or question.step in one.step)
            and (not one.paths or paths & {path[0] for path in one.paths})
        )
        in_order.append(all_of(one.people) if fits else set())
    in_order += [owners_of(question.named), owners_of(question.changed), all_of(shifts)]
    in_order.append(meant(starter) if starter else set())
    expected: set[str] = next((people for people in in_order if people), set())

    ids = {"ann": 1, "bob": 2, "cat": 3}
    people = tuple(Person(ids[name], name, f"{name}@example.org") for name in sorted(members))
    directory = Directory(people, {name: [ids[one] for one in of] for name, of in groups.items()})
    lines = "".join(f"/{folder}/ {' '.join(names)}\n" for folder, names in owned.items())
    found = route(
        question, directory, chosen=chosen, rules=rules, starter=starter,
        on_call=[on_call(name) for name in shifts],
        owners=CodeOwners.parse(lines, "github"),
    )  # fmt: skip
    assert {one.person.username for one in found} == expected
    assert len(found) == len(expected) and all(one.why for one in found)
