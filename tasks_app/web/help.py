"""Help: the documents that ship with the portal, with search."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tasks_app.core.environment import shipped_folder

#: The documents in groups, in the order in which people need them. Others are for developers.
GROUPS = {
    "Use": (
        "tasks", "asking-and-thresholds", "approvals", "reviews", "publishing", "sequences", "decisions",
        "notifications", "glossary",
    ),
    "Set up": ("pipelines", "people", "commands", "api", "mcp", "from-config-js"),
    "Run": ("operations", "settings", "security", "scaling", "performance", "changelog"),
}  # fmt: skip
_OTHERS = "Change"
_MOST_FOUND = 30
_SNIPPET = 160
_LINK = re.compile(r"\A([a-z-]+)\.md(#.*)?\Z")


@dataclass(frozen=True)
class Section:
    """A heading with the text below it, as it is searched."""

    page: str
    page_title: str
    title: str
    anchor: str
    text: str


@dataclass(frozen=True)
class Document:
    """A document as HTML. `contents` are its headings of the second level with their anchors."""

    name: str
    title: str
    html: SafeString
    contents: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Found:
    section: Section
    snippet: str


def help_index(request: HttpRequest) -> HttpResponse:
    """List the documents in groups, or with `?q=` the sections with all of the words."""
    words = request.GET.get("q", "").strip()[:100]
    context = {"groups": _groups(), "q": words, "found": _search(words) if words else []}
    return render(request, "help/index.html", context)


def help_page(request: HttpRequest, page: str) -> HttpResponse:
    document = documents().get(page)
    if document is None:
        raise Http404(f"There is no document “{page}”.")
    return render(request, "help/page.html", {"document": document, "groups": _groups()})


@cache
def documents() -> dict[str, Document]:
    """Return the documents by name. They change with the version of the portal only."""
    files = sorted(shipped_folder("docs").glob("*.md"))
    names = {file.stem for file in files}
    return {file.stem: _read(file.stem, file.read_text(encoding="utf-8"), names) for file in files}


def _groups() -> list[tuple[str, list[Document]]]:
    known = documents()
    named = {name for names in GROUPS.values() for name in names}
    groups = [(title, [known[name] for name in names if name in known]) for title, names in GROUPS.items()]
    return [*groups, (_OTHERS, [one for name, one in known.items() if name not in named])]


def _read(name: str, text: str, names: set[str]) -> Document:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    tokens = parser.parse(text)
    title, contents, sections = name, [], []
    anchor = heading = ""
    said: list[str] = []
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            if said:
                sections.append((heading, anchor, " ".join(said)))
            heading, said = _text_of(tokens[place + 1]), []
            anchor = _anchor(heading)
            token.attrSet("id", anchor)
            if token.tag == "h1":
                title = heading
            elif token.tag == "h2":
                contents.append((heading, anchor))
        elif token.type == "inline":
            if tokens[place - 1].type != "heading_open":
                said.append(_text_of(token))
            _change_links(token, names)
        elif token.type == "table_open":
            token.attrSet("tabindex", "0")  # a wide one scrolls, also by keys
        elif token.type == "fence":
            said.append(token.content)
    sections.append((heading, anchor, " ".join(said)))
    html = parser.renderer.render(tokens, parser.options, {})
    found = tuple(Section(name, title, *one) for one in sections)
    shown = mark_safe(html)  # noqa: S308 (the portal's own documents, with raw HTML escaped)
    return Document(name, title, shown, tuple(contents), found)


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _text_of(token: Token) -> str:
    return "".join(
        " " if one.type == "softbreak" else one.content for one in token.children or () if one.content
        or one.type == "softbreak"
    )  # fmt: skip


def _change_links(token: Token, names: set[str]) -> None:
    """Lead links between documents to their pages; others within the repository lead nowhere here."""
    for one in token.children or ():
        if one.type != "link_open":
            continue
        target = str(one.attrGet("href") or "")
        linked = _LINK.match(target)
        if linked and linked[1] in names:
            one.attrSet("href", reverse("help_page", args=[linked[1]]) + (linked[2] or ""))
        elif not target.startswith(("#", "https:", "http:")):
            one.attrs.pop("href", None)


def _search(words: str) -> list[Found]:
    """Return the sections that have all words, those with a matching heading first."""
    wanted = words.lower().split()
    found = []
    for document in documents().values():
        for section in document.sections:
            everything = f"{section.page_title} {section.title} {section.text}".lower()
            if all(word in everything for word in wanted):
                found.append((section, all(word in section.title.lower() for word in wanted)))
    found.sort(key=lambda one: not one[1])
    return [Found(section, _snippet(section, wanted[0])) for section, _ in found[:_MOST_FOUND]]


def _snippet(section: Section, word: str) -> str:
    place = max(0, section.text.lower().find(word) - _SNIPPET // 3)
    text = section.text[place : place + _SNIPPET].strip()
    before = "… " if place else ""
    after = " …" if place + _SNIPPET < len(section.text) else ""
    return f"{before}{text}{after}"
