"""One web address in the many ways in which it can be spelled, brought to the plain ones.

As browsers and the agent's program read an address (WHATWG URL). Standard library only: the gate's program
loads this file, and only for a call that has an address in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ADDRESS = re.compile(r"\A(https?):[\\/]*([^\\/?#]*)([^?#]*)(\?[^#]*)?", re.IGNORECASE | re.DOTALL)
_LEFT_OUT = re.compile("[\t\r\n]")
_ENDS = "".join(map(chr, range(0x21)))
#: Characters that names of hosts lose on their way to the network.
_IGNORED = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
_NUMBER = re.compile(r"\A(0[xX][0-9a-fA-F]*|[0-9]+)\Z")
_PORT = re.compile(r":([0-9]*)\Z")


def plain_addresses(text: str) -> Iterator[str]:
    """The address with its scheme, host and path in their plainest spelling, with http and with https.

    Nothing for what is no web address. The name of a user, the part behind `#` and a port that goes without
    saying are left out; an international name comes in both its forms.
    """
    found = _ADDRESS.match(_LEFT_OUT.sub("", text.strip(_ENDS)))
    if found is None:
        return
    authority = found[2].rpartition("@")[2]
    port = _PORT.search(authority)
    host = authority[: port.start()] if port else authority
    number = port[1].lstrip("0") if port else ""
    behind = f":{number}" if number not in ("", "80", "443") else ""
    for name in dict.fromkeys(_names(_decoded(host))):
        for path in dict.fromkeys(_paths(found[3])):
            for scheme in ("https", "http"):
                yield f"{scheme}://{name}{behind}{path}{found[4] or ''}"


def _decoded(text: str) -> str:
    """`%61` as `a`."""
    if "%" not in text:
        return text
    raw = re.sub(rb"%([0-9a-fA-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    return raw.decode("utf-8", "replace")


def _paths(path: str) -> Iterator[str]:
    """Without steps up and down, as it is written and with its escapes taken away."""
    for spelled in (path, _decoded(path)):
        steps: list[str] = []
        for step in re.split(r"[\\/]", spelled)[1:]:
            plain = step.lower().replace("%2e", ".")
            if plain == "..":
                steps = steps[:-1]
            elif plain != ".":
                steps.append(step)
        at_end = re.split(r"[\\/]", spelled)[-1].lower().replace("%2e", ".")
        yield "/" + "/".join(steps + [""] * (at_end in (".", "..") and bool(steps)))


def _names(host: str) -> Iterator[str]:
    import unicodedata

    name = unicodedata.normalize("NFKC", host.translate(_IGNORED)).lower().replace("。", ".")
    name = name.translate(_IGNORED).rstrip(".")
    if name.startswith("["):
        yield from _version_6(name)
    elif (number := _version_4(name)) is not None:
        yield number
    else:
        labels = name.split(".")
        yield ".".join(map(_to_ascii, labels))
        yield ".".join(map(_to_letters, labels))


def _version_4(name: str) -> str | None:
    """`0x7f.1`, `2130706433` and `0177.0.0.1` as `127.0.0.1`; None for a name."""
    parts = name.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.match, parts)):
        return None
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:  # 09
        return None
    value = numbers.pop()
    for index, number in enumerate(numbers):
        value += number << (8 * (3 - index))
    return ".".join(str(value >> shift & 0xFF) for shift in (24, 16, 8, 0))


def _number(part: str) -> int:
    if part[:2].lower() == "0x":
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") and part != "0" else int(part[:20])


def _version_6(name: str) -> Iterator[str]:
    import ipaddress

    try:
        address = ipaddress.IPv6Address(name.strip("[]").partition("%")[0])
    except ValueError:
        yield name
        return
    yield f"[{address.compressed}]"
    if address.ipv4_mapped is not None:
        yield str(address.ipv4_mapped)


def _to_ascii(label: str) -> str:
    return label if label.isascii() else f"xn--{label.encode('punycode').decode()}"


def _to_letters(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode().decode("punycode")
    except (UnicodeError, ValueError, OverflowError):
        return label
