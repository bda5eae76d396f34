"""What `git-lfs-authenticate` answers, and how the server of an ssh URL is named."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tasks_app.core.errors import BadInput
from tasks_app.git.lfs_over_ssh import command_for_upload, parse_endpoint, ssh_address

URL = "https://lfs.example/ann/shop"
TOKEN = 'RemoteAuth a"secret\\\\n; # token'


def answer(**values: Any) -> bytes:
    return json.dumps(values).encode()


def test_the_headers_are_settings_for_the_endpoint_alone(tmp_path: Path) -> None:
    given = answer(href=URL, header={"Authorization": TOKEN, "X-Other": "1"}, expires_in=86400)
    endpoint = parse_endpoint(given)
    (tmp_path / "config").write_text(endpoint.settings)
    words = ["git", "config", "--file", str(tmp_path / "config"), "--get-urlmatch", "http.extraHeader"]
    assert git(*words, f"{URL}/objects/batch") == "X-Other: 1"
    assert git(*words, "https://lfs.example/bob/shop") == ""
    listed = git("git", "config", "--file", str(tmp_path / "config"), "--get-all", f"http.{URL}.extraHeader")
    assert listed == f"Authorization: {TOKEN}\nX-Other: 1"
    assert TOKEN not in repr(endpoint) and TOKEN.split()[1] in endpoint.secrets


def git(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.removesuffix("\n")


@pytest.mark.parametrize(
    "given", [answer(href=URL), answer(href=URL, header={}), answer(href=URL, header=None)]
)
def test_an_answer_may_have_no_headers(given: bytes) -> None:
    assert parse_endpoint(given).headers == ()


@pytest.mark.parametrize(
    "href",
    [
        "http://lfs.example/shop", "ssh://lfs.example/shop", "//lfs.example/shop", "", 1, None,
        "https://ann@lfs.example/shop", "https://lfs.example/shop?token=1", "https://lfs.example/shop#a",
        'https://lfs.example/"]', "https://lfs.example/a\n[core]", "https://lfs.example/a b",
        "https://lfs.example/" + "a" * 2000, "https:///shop",
        "https://lfs.example/a.standalonetransferagent=b",
    ],
)  # fmt: skip
def test_an_endpoint_is_a_plain_https_url(href: object) -> None:
    with pytest.raises(BadInput, match="no https URL"):
        parse_endpoint(answer(href=href, header={}))


@pytest.mark.parametrize(
    "header", [{"A B": "1"}, {"": "1"}, {"A": "1\n2"}, {"A": "\u263a"}, {f"A{n}": "" for n in range(21)}]
)
def test_headers_that_cannot_be_sent_are_refused(header: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="cannot be sent"):
        parse_endpoint(answer(href=URL, header=header))


@pytest.mark.parametrize("given", [b"", b"Welcome!", b"[]", b"1", b'{"header": {}}', b"\xff", b"[" * 100_000])
def test_other_text_is_no_answer(given: bytes) -> None:
    with pytest.raises(BadInput, match="not what Git LFS expects"):
        parse_endpoint(given)


@pytest.mark.parametrize(
    ("url", "server", "path"),
    [
        ("git@example.org:ann/shop.git", ["--", "git@example.org"], "ann/shop.git"),
        ("ssh://example.org/ann/shop.git", ["--", "example.org"], "/ann/shop.git"),
        ("ssh://git@example.org:2222/a%20b", ["-p", "2222", "--", "git@example.org"], "/a b"),
        ("ssh://git@[::1]/~ann/shop", ["--", "git@::1"], "~ann/shop"),
    ],
)
def test_server_and_path_are_those_that_git_takes(url: str, server: list[str], path: str) -> None:
    assert ssh_address(url) == (server, path)


def test_a_path_is_one_word_for_the_shell_of_the_server() -> None:
    assert command_for_upload("/a'; reboot") == "git-lfs-authenticate '/a'\"'\"'; reboot' upload"
