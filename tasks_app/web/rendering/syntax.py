"""Syntax colours of the lines of files, by Pygments in a process of its own (`syntax_program.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from threading import Lock

from tasks_app.web.rendering import syntax_program
from tasks_app.web.rendering.syntax_program import Run

#: Longer texts, and texts with longer lines (minified code), are shown without colours.
LONGEST_TEXT = 100_000
LONGEST_LINE = 2_000
#: Seconds of one process for all of its texts. What is not coloured by then has no colours.
TIME_LIMIT = 3.0

#: The classes of colours in the style sheet. Nothing else becomes a class.
CLASSES = frozenset("ckfnpst")

#: Files that were coloured last, by blob and language: threads and context of a file are fetched again.
_KEPT = 32
_EXTENSIONS = {
    **dict.fromkeys(("py", "pyi"), "python"), **dict.fromkeys(("js", "mjs", "cjs", "jsx"), "javascript"),
    **dict.fromkeys(("ts", "mts", "cts", "tsx"), "typescript"), **dict.fromkeys(("c", "h"), "c"),
    **dict.fromkeys(("cc", "cpp", "cxx", "hpp", "hh"), "cpp"), **dict.fromkeys(("sh", "bash"), "bash"),
    **dict.fromkeys(("yaml", "yml"), "yaml"), **dict.fromkeys(("html", "htm"), "html"),
    **dict.fromkeys(("md", "markdown"), "markdown"), **dict.fromkeys(("kt", "kts"), "kotlin"),
    **dict.fromkeys(("ex", "exs"), "elixir"), **dict.fromkeys(("hs",), "haskell"),
    **dict.fromkeys(("ini", "cfg"), "ini"), **dict.fromkeys(("xml", "svg", "xsd"), "xml"),
    "cs": "csharp", "css": "css", "dart": "dart", "erl": "erlang", "fs": "fsharp", "go": "go",
    "gradle": "groovy", "groovy": "groovy", "java": "java", "json": "json", "jl": "julia", "less": "less",
    "lua": "lua", "m": "objective-c", "mk": "make", "ml": "ocaml", "nix": "nix", "php": "php", "pl": "perl",
    "pm": "perl", "proto": "protobuf", "ps1": "powershell", "r": "r", "rb": "ruby", "rs": "rust",
    "rst": "restructuredtext", "scala": "scala", "scss": "scss", "sql": "sql", "swift": "swift",
    "tf": "terraform", "toml": "toml", "vue": "html", "zig": "zig", "clj": "clojure", "cmake": "cmake",
}  # fmt: skip
_NAMES = {"makefile": "make", "dockerfile": "docker", "containerfile": "docker", "gemfile": "ruby"}

#: The colours of a text, line by line.
Colours = list[list[Run]]


def language_of(path: str) -> str:
    """Return Pygments' name of the language of a file; "" if it is shown without colours."""
    name = PurePosixPath(path).name.lower()
    return _NAMES.get(name) or _EXTENSIONS.get(name.rpartition(".")[2] if "." in name else "", "")


class _Coloured:
    """The colours of the files that were asked for last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, str], Colours] = OrderedDict()

    def get(self, key: tuple[str, str]) -> Colours | None:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def keep(self, key: tuple[str, str], colours: Colours) -> None:
        with self._lock:
            self._known[key] = colours
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)


_coloured = _Coloured()


def colours_of(texts: Iterable[tuple[str, str, str]]) -> dict[str, Colours]:
    """Return the colours of texts, each given as its blob, its language and itself, by blob.

    A text without colours is left out: too long, of no known language, or not coloured in time.
    """
    found: dict[str, Colours] = {}
    missing: dict[tuple[str, str], str] = {}
    for blob, language, text in texts:
        if (known := _coloured.get((blob, language))) is not None:
            found[blob] = known
        elif not language or not blob or len(text) > LONGEST_TEXT:
            continue
        elif max(map(len, text.split("\n"))) <= LONGEST_LINE:
            missing[blob, language] = text
    if missing:
        runs = _run_program([(text, language) for (_, language), text in missing.items()])
        for key, colours in zip(missing, runs, strict=False):
            _coloured.keep(key, colours)
            found[key[0]] = colours
    return found


def _run_program(texts: Sequence[tuple[str, str]]) -> list[Colours]:
    """Return the colours of the first texts, as many as were coloured in time."""
    program = Path(syntax_program.__file__)
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(program)],
            input=json.dumps(texts).encode(),
            capture_output=True,
            timeout=TIME_LIMIT,
            env={},
        )
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
    except OSError:
        return []
    return [_with_known_classes(json.loads(line)) for line in output.split(b"\n")[:-1]]


def _with_known_classes(lines: list[list[list[object]]]) -> Colours:
    """Return the runs with known classes only."""
    return [
        [(int(str(length)), str(name) if name in CLASSES else "") for length, name in line] for line in lines
    ]
