"""Addresses of chat services with options that read files, or switch checks off, however they are spelled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tasks_app.core.errors import BadInput
from tasks_app.notifications import chat

PLACE = "workflows://host.example:443/workflow/signature/"


@pytest.mark.parametrize(
    "more",
    [
        "?template=/etc/passwd",
        "?to=x;template=/etc/passwd",
        "#?template=/etc/passwd",
        "?to=a#&template=/etc/passwd",
        "?to=a;verify=no",
        "?Template%20=/etc/passwd",
        "?+x=/etc/passwd",
    ],
)
def test_no_option_but_the_listed_ones_however_it_is_spelled(more: str) -> None:
    """apprise reads an address in a way of its own: what it takes for an option counts."""
    with pytest.raises(BadInput, match="is not allowed here"):
        chat.check(PLACE + more)


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "json://10.0.0.1", "syslog://", "dbus://", "windows://", "mailto://a:b@c.example"],
)
def test_only_chat_services_are_spoken_to(address: str) -> None:
    with pytest.raises(BadInput):
        chat.check(address)


@pytest.mark.parametrize(
    ("address", "encrypted"),
    [
        ("mmost://h.example/3ccdd113474722377935511fc85d3dd4", "mmosts"),
        ("MMost://h.example/3ccdd113474722377935511fc85d3dd4", "mmosts"),
        ("rocket://w:1/x@h.example", "rockets"),
        ("matrix://u:p@h.example", "matrixs"),
        ("ntfy://h.example/topic", "ntfys"),
        ("gotify://h.example/token", "gotifys"),
    ],
)
def test_what_is_sent_to_a_chat_is_encrypted(address: str, encrypted: str) -> None:
    with pytest.raises(BadInput, match=f"not encrypted. Use {encrypted}://"):
        chat.check(address)
    chat.check(f"{encrypted}:{address.partition(':')[2]}")


def test_a_chat_service_never_gets_a_local_file_whatever_its_url_says(tmp_path: Path) -> None:
    """The second wall: the process that speaks to services reads no file of the portal."""
    secret = tmp_path / "secret_key"
    secret.write_text("secret")
    program = (
        "from tasks_app.notifications import chat_child as child\n"
        "child.OPTIONS.add('template'); child._block_access([]); child.handle_request("
        "  {'url': %r, 'check': True})\n"
        "for path in %r:\n"
        "    try: open(path).close(); print('open')\n"
        "    except PermissionError: print('shut')\n"
    )
    paths = [str(secret), "/etc/passwd", sys.prefix + "/pyvenv.cfg"]
    given = program % (f"{PLACE}?template={secret}", paths)
    done = subprocess.run([sys.executable, "-c", given], capture_output=True, text=True, check=True)
    assert json.dumps(done.stdout.split()) == '["shut", "shut", "open"]'
