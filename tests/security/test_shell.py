"""Ways round `askBefore` that are plain bash: what bash would run must be found, and what it would not, not.

A tripwire and no wall: a script that the agent wrote, an alias of git or a text put together can still push.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks_app.agent.gate.hook import questions_in
from tasks_app.agent.gate.patterns import command_matches, needs_approval

RUN = [
    "# don't push yet\nenv git push\n# it's done",
    "echo a # '\n/usr/bin/git push # '",
    "echo a\\\\\ngit push",
    "echo '<<A'\n\"git\" push\nA",
    "echo $((1<<A))\n\\git push\nA",
    "cat <<<A\n/usr/bin/git push\nA",
    "# <<A\ngit push\nA",
    "cat <<A-B\nx\nA-B\ngit push",
    "cat <<A\n A\n'\nA\n/usr/bin/git push # '",
    "cat <<A\nit's $(/usr/bin/git push)\nA",
    "git $'push'",
    "git $'\\x70ush'",
    "git 3>/dev/null push",
    "git {fd}>/dev/null push",
    "git >| x push",
    "git &> x push",
    "PATH+=:x git push",
    "a[0]=1 git push",
    "A=1 " * 300 + "git push",
    "c='git push'; $c",
    "c=git; $c push",
    "git ${c:-push}",
    "git pu${nothing}sh",
    "git$IFS$9push",
    "coproc git push",
    "function f { git push; }; f",
    "trap 'git push' EXIT",
    "alias p='git push'; p",
    "env -S'git push'",
    "env --split-string='git push'",
    "echo git push | sh",
    ". <(echo git push)",
    'echo "$(echo "$(/usr/bin/git push)")"',
    "echo `echo \\`git push\\``",
    "setpriv --reuid 0 git push",
    "npm exec -- git push",
    "git submodule foreach git push",
    "git --attr-source HEAD push",
    "python3 - <<EOF\nimport os; os.system('git push')\nEOF",
    "perl -e 'system(\"git push\")'",
    'node -e "run(`git push`)"',
]
NOT_RUN = [
    "cat <<A\nA)\ngit push\nA",
    "cat <<A\nx\\\nA\ngit push\nA",
    "cat <<'A' > notes\nit's done by git push\nA\nls",
    "echo done # then git push",
    "git status # don't git push",
    'git commit -m "it\'s time to git push"',
    "cat notes > 'git push'",
    "x='git push' ls",
]


@pytest.mark.parametrize("command", RUN)
def test_what_bash_would_run_is_asked_about(command: str) -> None:
    assert command_matches(command, "git push*")


@pytest.mark.parametrize("command", NOT_RUN)
def test_what_is_only_text_is_not(command: str) -> None:
    assert not command_matches(command, "git push*")


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("x=aa;" + "x=$x$x;" * 60 + "$x", True),
        ("cat <<A\n" + "\\\nA\n" * 30_000, False),
        ("cat " + "<<A\n" * 30_000, False),
        ("bash <<A\n" * 3_000 + "A\n" * 3_000, True),
        ("$((" * 5_000, True),
        ("bash " + "'a b' " * 20_000, False),
        ("echo " + "{" * 50_000, False),
        ("echo a[b " * 10_000, False),
    ],
    ids=["values-in-values", "slashes", "endless", "documents", "brackets", "scripts", "braces", "classes"],
)
def test_no_line_holds_up_the_gate(command: str, asked: bool) -> None:
    """What cannot be taken apart is asked about."""
    assert command_matches(command, "git push*") is asked


@pytest.mark.parametrize(
    "url",
    [
        "HTTPS://API.Example.com/x",
        "http://api.example.com/x",
        "https://api.example.com:443/x",
        "https://api.example.com./x",
        "https://ann:b@api.example.com/x",
        " https://api.example.com/x",
        "https://ok.example.org@api.example.com/x",
        "https://api.example.com\\@ok.example.org/x",
        "https:\\\\api.example.com\\x",
        "https:api.example.com/x",
        "https:////api.example.com/x",
        "https://api.exa%6Dple.com/x",
        "https://ap\ti.example\n.com/x",
        "https://api\u3002example\uff0ecom/x",
        "https://\uff41pi.example.com/x",
        "https://ap\u00adi.example.com/x",
        "https://api.example.com/y/../x",
        "https://api.example.com/%2e%2E/./x",
        "https://api.example.com#@ok.example.org",
        "https://api.example.com?@ok.example.org",
        "https://api.example.com:0443/x",
        "https://api.example.com:/x",
    ],
)
def test_one_address_in_many_spellings_is_one(url: str) -> None:
    """http is made https by the tool itself."""
    rules = ["WebFetch(https://api.example.com/*)"]
    assert needs_approval(rules, "WebFetch", {"url": url}, workspace="/w")
    assert not needs_approval(rules, "WebFetch", {"url": "https://api.example.com:8443/x"}, workspace="/w")


@pytest.mark.parametrize(
    ("rule", "url"),
    [
        ("http://127.0.0.1/*", "http://2130706433/x"),
        ("http://127.0.0.1/*", "http://0x7f.1/x"),
        ("http://127.0.0.1/*", "http://0177.0.0.1/x"),
        ("http://127.0.0.1/*", "http://127.1/x"),
        ("http://127.0.0.1/*", "http://[::ffff:127.0.0.1]/x"),
        ("http://127.0.0.1/*", "http://[::ffff:7f00:1]/x"),
        ("http://127.0.0.1/*", "http://127.0.0.1./x"),
        ("http://[::1]/*", "http://[0:0:0:0:0:0:0:1]/x"),
        ("http://127.0.0.1:8000/*", "http://0x7f000001:8000/x"),
        ("https://bücher.example/*", "https://xn--bcher-kva.example/x"),
        ("https://xn--bcher-kva.example/*", "https://BÜCHER.example/x"),
        ("https://API.Example.com/*", "https://api.example.com/x"),
        ("https://api.example.com/admin*", "https://api.example.com/%61dmin/x"),
        ("https://api.example.com/admin*", "https://api.example.com/x/../admin"),
    ],
)
def test_an_address_is_found_by_its_plain_spelling(rule: str, url: str) -> None:
    assert needs_approval([f"WebFetch({rule})"], "WebFetch", {"url": url}, workspace="/w")


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com@ok.example.org/x",
        "https://ok.example.org/?u=https://api.example.com/x",
        "https://ok.example.org#https://api.example.com/x",
        "https://api.example.com.ok.example.org/x",
        "https://ok.example.org\\@api.example.com/x",
        "https://[::1/x",
        "https://%ff/x",
        "https://09.1/x",
        "https:",
        "about:blank",
    ],
)
def test_another_address_is_not(url: str) -> None:
    rules = ["WebFetch(https://api.example.com/*)"]
    assert not needs_approval(rules, "WebFetch", {"url": url}, workspace="/w")


def _shell_text() -> st.SearchStrategy[str]:
    pieces = [*"abc$`'\"\\(){}[]<>|&;!#~*?=@+ \n\t", "git", "push", "${", "$(", "$((", "<<A\n", "\nA\n"]
    pieces += [
        "case x in ",
        "esac",
        "[[ ",
        " ]]",
        "bash -c ",
        "eval ",
        "cat-herder ask ",
        "x=",
        "$x",
        "\0",
        "\1",
        "\2",
        "é",
    ]
    return st.lists(st.sampled_from(pieces), max_size=40).map("".join)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_shell_text())
def test_no_text_breaks_the_reader(text: str) -> None:
    """Whatever an agent writes, the gate has an answer, and questions can be looked for."""
    assert command_matches(text, "git push*") in (True, False)
    assert all(questions_in(text))
