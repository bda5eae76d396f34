"""Colour source code in a separate process: reads texts with their languages as JSON, prints runs of colours.

Code is hostile text, and Pygments' regular expressions can take minutes for some of it, during which a thread
of the portal would stop all others. The parent ends this process when it takes too long.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

#: A run: how many characters, and their class ("" for none).
Run = tuple[int, str]


def main() -> None:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]

    for text, language in json.load(sys.stdin):
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
        lines = coloured((str(kind), value) for kind, value in lexer.get_tokens(text))
        sys.stdout.write(json.dumps(lines) + "\n")
        sys.stdout.flush()  # the parent uses what was written before it ends this process


def coloured(tokens: Iterator[tuple[str, str]]) -> list[list[Run]]:
    """Return the runs of each line."""
    lines: list[list[Run]] = [[]]
    for kind, value in tokens:
        colour = colour_of(kind)
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if piece:
                _append(lines[-1], len(piece), colour)
    return lines


def _append(line: list[Run], length: int, colour: str) -> None:
    if line and line[-1][1] == colour:
        line[-1] = (line[-1][0] + length, colour)
    else:
        line.append((length, colour))


#: The class of a token, by the longest beginning of its kind.
_COLOURS = {
    "Token.Comment": "c",
    "Token.Comment.Preproc": "p",
    "Token.Keyword": "k",
    "Token.Keyword.Constant": "n",
    "Token.Keyword.Type": "t",
    "Token.Operator.Word": "k",
    "Token.Literal.String": "s",
    "Token.Literal.String.Interpol": "p",
    "Token.Literal.Number": "n",
    "Token.Literal": "n",
    "Token.Name.Attribute": "t",
    "Token.Name.Builtin": "t",
    "Token.Name.Class": "f",
    "Token.Name.Constant": "n",
    "Token.Name.Decorator": "p",
    "Token.Name.Exception": "t",
    "Token.Name.Function": "f",
    "Token.Name.Tag": "k",
    "Token.Generic.Heading": "f",
    "Token.Generic.Subheading": "f",
    "Token.Generic.Strong": "f",
    "Token.Generic.Emph": "s",
}


def colour_of(kind: str) -> str:
    while kind:
        if kind in _COLOURS:
            return _COLOURS[kind]
        kind = kind.rpartition(".")[0]
    return ""


if __name__ == "__main__":
    main()
