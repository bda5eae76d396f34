"""Facts about the items of a question: what they recommend, and whether two of them are the same.

An item is an object with `question`, `header`, `options` (each with a `label`) and `multiSelect`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

from tasks_app.core.similar_questions import RECOMMENDED, own_label, question_digest, same_text
from tasks_app.core.text import lines_joined, shortened
from tasks_app.core.types import ALLOW_CALL, ALLOW_COMMAND, REVIEW_PLAN

_KEY_LENGTH = 16
#: Parts between commas of an answer that may be choices.
_MOST_PARTS = 100

Item = Mapping[str, Any]


_STRUCTURE = re.compile(r"\s*(?:[-*+#>|]|\d+[.)]|```|~~~)\s?")
_CODE = re.compile(r"`[^`]*`")
_CLOSING_MARKS = "\"'”’)]*_"
#: What follows a question mark begins a sentence, whatever it is: a small letter, a dash, an address.
_SENTENCE_END = re.compile(
    rf"(?:\?[{re.escape(_CLOSING_MARKS)}]*\s+|[.!…][{re.escape(_CLOSING_MARKS)}]*\s+(?=[\"'“‘(\[*_]*[^\Wa-z_]))"
)
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|no|fig)\.\s+$", re.IGNORECASE)
_LONGEST_ABBREVIATION = 12
#: Characters of a paragraph in which sentences are looked for; what follows belongs to the reasons.
_MOST_READ = 8_000
#: Words that point to what was said before. A sentence of fewer words says too little by itself as well.
_POINTS_BACK = re.compile(
    r"\b(?:this|these|those|it|its|they|them|their|both|either|neither|ones?|such)\b", re.I
)
_FEWEST_WORDS = 3
#: Characters of a beginning below which it says nothing.
_LEAST_BEGINNING = 20
#: A word by which an agent speaks of itself; not “I/O”, `my_table` or “Type I”.
_OF_ITSELF = re.compile(
    r"(?<![\w./`-])(?<!Type )(?<!Phase )"
    r"(?:I(?:['’](?:m|d|ve|ll))?|[Mm]y(?:self)?|[Mm]e|[Mm]ine)(?![\w/`-]|\.\w)"
)
#: A part of a sentence that can be left out of it.
_ASIDE = re.compile(r"\s*(?:\([^()]*\)|[;–—] [^;–—()]*)")
#: What the first lines of plans begin with, which says nothing of this one.
_PLAN_HEAD = re.compile(r"\A\s*(?:#+\s*)?(?:plan\b\s*[:–-]?\s*)?", re.IGNORECASE)


class QuestionParts(NamedTuple):
    """A text in the order of its words, in Markdown: what asks, and what stands before and after it."""

    before: str
    asked: str
    after: str


def parts_of_question(text: str) -> QuestionParts:
    """Return the first sentences of a text that ask, one behind the other, with the text around them.

    They are looked for in its first paragraph, then in its last one; if none asks, the first one counts.
    No sentence changes its place: “Is that right?” refers to what stands before it.
    """
    paragraphs = text.strip().split("\n\n")
    for place in dict.fromkeys((0, len(paragraphs) - 1)):
        if "```" in "".join(paragraphs[:place]):
            break
        lines = paragraphs[place].split("\n")
        end = next((number for number, line in enumerate(lines) if _STRUCTURE.match(line)), len(lines))
        paragraph = "\n".join(lines[:end])
        sentences = _sentences(paragraph[:_MOST_READ])
        before = list(takewhile(lambda one: not _asks(one), sentences))
        if asking := list(takewhile(_asks, sentences[len(before) :])):
            after = " ".join(sentences[len(before) + len(asking) :]) + paragraph[_MOST_READ:]
            return QuestionParts(
                _joined(*paragraphs[:place], " ".join(before)),
                " ".join(asking),
                _joined(after, "\n".join(lines[end:]), *paragraphs[place + 1 :]),
            )
    return QuestionParts("", paragraphs[0], _joined(*paragraphs[1:]))


def _asks(sentence: str) -> bool:
    return sentence.rstrip(_CLOSING_MARKS).endswith("?")


def _joined(*paragraphs: str) -> str:
    return "\n\n".join(filter(None, paragraphs)).strip()


@dataclass(frozen=True)
class Title:
    """The title of a card in lists: what its first question asks, with its header.

    `before` and `after` are what the sentence needs to be understood, in the order of the text. `more`: how
    many other questions it has, and `also` their headers.
    """

    header: str
    asked: str
    before: str = ""
    after: str = ""
    more: int = 0
    also: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What it asks, with its context."""
        return " ".join(filter(None, (self.before, self.asked, self.after)))

    def __str__(self) -> str:
        said = ": ".join(filter(None, (self.header, self.sentence)))
        if self.more:
            return f"{said} ({self.others})"
        return said

    @property
    def others(self) -> str:
        """What it asks besides, such as `and 2 more: Columns, Name`; empty for a single question."""
        if not self.more:
            return ""
        return ": ".join(filter(None, (f"and {self.more} more", ", ".join(self.also))))


def title_of(items: Sequence[Item]) -> Title:
    """Return the title of a card. A sentence that cannot stand alone keeps the one before it, or the next."""
    if not items:
        return Title("", "")
    if len(items) > 1:
        also = tuple(str(item["header"]) for item in items[1:] if item.get("header"))
        return replace(title_of(items[:1]), more=len(items) - 1, also=also)
    header = str(items[0].get("header") or "")
    before, asked, after = parts_of_question(str(items[0].get("question", "")))
    if len(asked.split()) >= _FEWEST_WORDS and not _POINTS_BACK.search(asked):
        return Title(header, asked)
    if not before:
        following = after.partition("\n\n")[0]
        if _STRUCTURE.match(following):
            following = ""
        return Title(header, asked, after=following)
    nearest, last = before.rpartition("\n\n")[2], ""
    if not _STRUCTURE.match(nearest):
        last = _sentences(nearest[-_MOST_READ:])[-1]
    if last != before:
        last = f"… {last}".strip()
    return Title(header, asked, before=last)


def sentence_asked(item: Item) -> str:
    """Return what an item asks in one line, with its context if it needs that."""
    return lines_joined(title_of([item]).sentence)


def sentence_with_beginning(text: str, limit: int) -> str:
    """Return what a long text asks in one line, after the beginning of what stands before it.

    “What shall happen?” says nothing by itself. `limit` is in characters; a longer sentence stays whole.
    """
    item = {"question": text}
    sentence, before = sentence_asked(item), lines_joined(parts_of_question(text).before)
    room = limit - len(sentence) - 1
    if title_of([item]).before or not before or room < _LEAST_BEGINNING:
        return sentence
    return f"{shortened(before, room)} {sentence}"


#: Above the folder in which a command that waits would run, if that is not the workspace.
SHELL_FOLDER = "Folder of the shell"


def row_title(items: Sequence[Item], evidence: Sequence[Mapping[str, Any]] | None = ()) -> Title:
    """Return what a row of a list shows: the call itself, the first line of the plan, or the question."""
    title = title_of(items)
    if title.asked in (ALLOW_COMMAND, ALLOW_CALL) and title.after:
        return Title("", title.after)
    if title.asked == REVIEW_PLAN:
        plan = next((str(one.get("text", "")) for one in evidence or () if one.get("kind") == "markdown"), "")
        lines = (_PLAN_HEAD.sub("", line).strip() for line in plan.split("\n"))
        first = next(filter(None, lines), title.asked)
        return Title("", first[:1].upper() + first[1:])
    return title


def _sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph. What stands in backticks does not end one."""
    masked = _CODE.sub(lambda code: "X" * len(code[0]), text)
    found, start = [], 0
    for end in _SENTENCE_END.finditer(masked):
        if not _ABBREVIATION.search(masked, max(start, end.end() - _LONGEST_ABBREVIATION), end.end()):
            found.append(text[start : end.end()].strip())
            start = end.end()
    return [*found, *filter(None, [text[start:].strip()])]


def without_remarks(text: str) -> str:
    """Return a text without what an agent says of itself in it, such as “I favour this” or “(my preference)”.

    An option's description becomes a rule of the project, in which nobody is “I”.
    """
    kept = []
    for sentence in _sentences(text[:_MOST_READ]):
        end = "." if sentence.endswith(".") else ""
        said = _ASIDE.sub(lambda aside: "" if _OF_ITSELF.search(aside[0]) else aside[0], sentence)
        if not _OF_ITSELF.search(said):
            kept.append(said.removesuffix(".") + end if said != sentence else sentence)
    return " ".join(kept) + text[_MOST_READ:]


def item_key(item: Item) -> str:
    """Return a short key of the item's text and options, compared as in `question_digest`.

    Unlike there, the header and what options mean do not count: agents describe the same choice anew each
    time.
    """
    options = [{"label": label} for label in _option_labels(item)]
    return question_digest([{"question": item.get("question", ""), "options": options}])[:_KEY_LENGTH]


def item_keys(items: Iterable[Item]) -> str:
    """Return the keys of all items, as a question stores them."""
    return " ".join(map(item_key, items))


def without_recommended(text: str) -> str:
    """Return the text without the mark “(Recommended)”."""
    return RECOMMENDED.sub("", text)


def label_of(text: str, labels: Sequence[str]) -> str:
    """Return the label that the text is, also without its mark “(Recommended)”; "" if it is none."""
    wanted = text.strip()
    # By their text without the mark; not those that it would make equal.
    plain = [without_recommended(label).strip() for label in labels]
    for names in (
        {label.strip(): label for label in labels},
        {text: label for text, label in zip(plain, labels, strict=True) if plain.count(text) == 1},
    ):
        if label := names.get(wanted, ""):
            return label
    return ""


def as_labels(item: Item, answer: str) -> str:
    """Return the answer with its choices written as their labels are. Any other text stays as it is."""
    labels = _option_labels(item)
    if len(answer) > 2 * len(", ".join(labels)):  # too long for a choice, and slow to split
        return answer
    found = [label_of(part, labels) for part in _choices(item, answer)]
    return ", ".join(found) if all(found) else answer


def says_same(item: Item, one: str, other: str) -> bool | None:
    """Return whether two answers to an item say the same: a set of choices if several are possible.

    Ignored are: white space, Unicode composition, “(Recommended)” and the order of choices. None if the
    answers differ and one of them is a free text: nobody can compare what it means.
    """
    (mine, are_options), (theirs, are_options_too) = _choices_in(item, one), _choices_in(item, other)
    if mine == theirs:
        return True
    if are_options and are_options_too:
        return False
    return None


def answer_in_full(item: Item, answer: str) -> str:
    """Return the answer as a text that needs no options beside it: each chosen label with its description.

    Own words behind the choices stay as they were written.
    """
    described = {
        without_recommended(str(option.get("label", ""))).strip(): str(option.get("description") or "")
        for option in item.get("options") or ()
        if isinstance(option, Mapping)
    }
    texts: list[str] = []
    parts = _choices(item, answer)
    for place, part in enumerate(parts):
        label = without_recommended(part).strip()
        if label not in described:
            texts.append(without_recommended(", ".join(parts[place:])).strip())
            break
        description = lines_joined(described[label])
        texts.append(f"{label}: {description}" if description else label)
    if len(texts) == 1:
        return texts[0]
    return "; ".join(text.removesuffix(".") for text in texts)


def is_terse(answer: str) -> bool:
    """Return whether an answer says nothing without its question, such as “Yes” or “Half up”."""
    words = answer.split()
    return len(words) < _FEWEST_WORDS or words[0].strip(":,;.").lower() in ("yes", "no")


def answer_as_told(item: Item, answer: str) -> str:
    """Return the answer in full if it chooses options that say what they mean; else as it was given."""
    explained = any(meaning for _, meaning in chosen_options(item, answer))
    return answer_in_full(item, answer) if explained else answer


def chosen_options(item: Item, answer: str) -> list[tuple[str, str]]:
    """Return label and description of the options that an answer chooses.

    Forms write further text behind the choices, so the first part that is not an option ends them. Options
    that a sentence only mentions are not chosen.
    """
    described = {
        own_label(str(option["label"])): (str(option["label"]), str(option.get("description") or ""))
        for option in item.get("options") or ()
    }
    chosen = []
    for part in _choices(item, answer):
        if own_label(part) not in described:
            break
        chosen.append(described[own_label(part)])
    return chosen


def in_own_labels(item: Item, answer: str) -> str:
    """Return the answer with the labels of this item's options, which may recommend another one."""
    own = _option_labels(item)
    labels = {own_label(label): label for label in own}
    choices = [answer] if answer in own else _choices(item, answer)
    return ", ".join(part if part in own else labels.get(own_label(part), part) for part in choices)


def _choices_in(item: Item, answer: str) -> tuple[frozenset[str], bool]:
    """Return what was answered, as it is compared, and whether all of it are options of the item."""
    labels = {own_label(label) for label in _option_labels(item)}
    chosen = frozenset(map(own_label, _choices(item, answer)))
    return chosen, chosen <= labels


def _choices(item: Item, answer: str) -> list[str]:
    """Return the choices of an answer. A label may have a comma itself, so the longest one is taken."""
    if not item.get("multiSelect"):
        return [answer]
    labels = {own_label(label) for label in _option_labels(item)}
    lengths = sorted({label.count(", ") + 1 for label in labels} - {1}, reverse=True)
    words = answer.split(", ")
    if len(words) > _MOST_PARTS:  # too long for a choice, and slow to compare
        return [answer]
    found, at = [], 0
    while at < len(words):
        texts = [", ".join(words[at : at + length]) for length in lengths if at + length <= len(words)]
        text = next((text for text in texts if own_label(text) in labels), words[at])
        found.append(text)
        at += text.count(", ") + 1
    return found


def recommended_items(items: Iterable[Item]) -> int:
    """Return how many items recommend an option."""
    return sum(1 for item in items if _recommended(item))


def recommended_taken(items: Iterable[Item], answers: Mapping[str, str]) -> int:
    """Return how many items were answered with what they recommend, and with nothing else."""
    taken = 0
    for item in items:
        recommended, answer = _recommended(item), answers.get(str(item.get("question", "")), "")
        # Several choices stand in one answer, with ", " between them.
        if recommended and answer in {", ".join(recommended), ", ".join(reversed(recommended))}:
            taken += 1
    return taken


def recommended_answers(items: Iterable[Item]) -> dict[str, str]:
    """Return each item's question with what is recommended; empty if one of the items recommends nothing.

    Of an item with one choice the recommendation must be one option.
    """
    answers = {}
    for item in items:
        labels = _recommended(item)
        if not labels or (len(labels) > 1 and not item.get("multiSelect")):
            return {}
        answers[str(item.get("question", ""))] = ", ".join(labels)
    return answers


_IRREVERSIBLE = re.compile(
    r"irreversibl[ey]|(?:cannot|can not|can[’']t|could not|not) be (?:undone|reversed|brought back|restored)"
    r"|no way back",
    re.IGNORECASE,
)


def says_irreversible(items: Iterable[Item]) -> bool:
    """Return whether a question or one of its options says that something cannot be undone."""
    for item in items:
        options = [one for one in item.get("options") or () if isinstance(one, Mapping)]
        texts = [str(item.get("question", "")), str(item.get("header", ""))]
        texts += [f"{one.get('label', '')} {one.get('description', '')}" for one in options]
        if any(_IRREVERSIBLE.search(text) for text in texts):
            return True
    return False


def _recommended(item: Item) -> list[str]:
    return [label for label in _option_labels(item) if own_label(label) != same_text(label)]


def _option_labels(item: Item) -> Sequence[str]:
    return [
        str(option.get("label", "")) for option in item.get("options") or () if isinstance(option, Mapping)
    ]
