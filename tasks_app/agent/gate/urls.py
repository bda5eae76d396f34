"""Normalising URLs, of which each can be spelled in many ways.

It follows browsers and the agent's program (WHATWG URL). Standard library only: the gate's program loads this
file, but only for a call that contains a URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_URL = re.compile(r"\A(https?):[\\/]*([^\\/?#]*)([^?#]*)(\?[^#]*)?", re.IGNORECASE | re.DOTALL)
_REMOVED = re.compile("[\t\r\n]")
_STRIPPED = "".join(map(chr, range(0x21)))
#: Characters that are removed from host names.
_IGNORED = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
_NUMBER = re.compile(r"\A(0[xX][0-9a-fA-F]*|[0-9]+)\Z")
_PORT = re.compile(r":([0-9]*)\Z")


def normalised_urls(text: str) -> Iterator[str]:
    """Yield the normalised spellings of the URL, each with http and with https; none if it is not a web URL.

    They contain neither a user name, nor a fragment, nor a default port. An international host name is
    yielded in both its forms.
    """
    found = _URL.match(_REMOVED.sub("", text.strip(_STRIPPED)))
    if found is None:
        return
    authority = found[2].rpartition("@")[2]
    port = _PORT.search(authority)
    host, shown_port = authority, ""
    if port:
        host, number = authority[: port.start()], port[1].lstrip("0")
        if number not in ("", "80", "443"):
            shown_port = f":{number}"
    for name in dict.fromkeys(_normalised_hosts(_decode_percent(host))):
        for path in dict.fromkeys(_normalised_paths(found[3])):
            for scheme in ("https", "http"):
                yield f"{scheme}://{name}{shown_port}{path}{found[4] or ''}"


def _decode_percent(text: str) -> str:
    """Decode escapes such as `%61` for `a`."""
    if "%" not in text:
        return text
    raw = re.sub(rb"%([0-9a-fA-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    return raw.decode("utf-8", "replace")


def _normalised_paths(path: str) -> Iterator[str]:
    """Yield the path without `.` and `..`, as it is written and with its escapes decoded."""
    for spelled in (path, _decode_percent(path)):
        steps: list[str] = []
        for step in re.split(r"[\\/]", spelled)[1:]:
            plain = step.lower().replace("%2e", ".")
            if plain == "..":
                steps = steps[:-1]
            elif plain != ".":
                steps.append(step)
        at_end = re.split(r"[\\/]", spelled)[-1].lower().replace("%2e", ".")
        yield "/" + "/".join(steps + [""] * (at_end in (".", "..") and bool(steps)))


def _normalised_hosts(host: str) -> Iterator[str]:
    import unicodedata

    name = unicodedata.normalize("NFKC", host.translate(_IGNORED)).lower().replace("。", ".")
    name = name.translate(_IGNORED).rstrip(".")
    if name.startswith("["):
        yield from _ipv6_spellings(name)
    elif (ip_address := _parse_ipv4(name)) is not None:
        yield ip_address
    else:
        labels = name.split(".")
        yield ".".join(
            label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in labels
        )
        yield ".".join(map(_from_punycode, labels))


def _parse_ipv4(name: str) -> str | None:
    """Return `0x7f.1`, `2130706433` and `0177.0.0.1` as `127.0.0.1`, and None for a host name."""
    parts = name.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.match, parts)):
        return None
    try:
        numbers = [_parse_number(part) for part in parts]
    except ValueError:  # such as 09
        return None
    value = numbers.pop()
    for index, number in enumerate(numbers):
        value += number << (8 * (3 - index))
    return ".".join(str(value >> shift & 0xFF) for shift in (24, 16, 8, 0))


def _parse_number(part: str) -> int:
    if part[:2].lower() == "0x":
        return int(part[2:] or "0", 16)
    if part.startswith("0") and part != "0":
        return int(part, 8)
    return int(part[:20])


def _ipv6_spellings(name: str) -> Iterator[str]:
    import ipaddress

    try:
        address = ipaddress.IPv6Address(name.strip("[]").partition("%")[0])
    except ValueError:
        yield name
        return
    yield f"[{address.compressed}]"
    if address.ipv4_mapped is not None:
        yield str(address.ipv4_mapped)


def _from_punycode(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode().decode("punycode")
    except (UnicodeError, ValueError, OverflowError):
        return label
