"""Ways round `askBefore` that are plain bash: what bash would run must be found, and what it would not, not.

A tripwire and no wall: a script that the agent wrote, an alias of git or a text put together can still push.
"""

from __future__ import annotations

import pytest

from tasks_app.patterns import asked_before, command_matches

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
    "command",
    [
        "x=aa;" + "x=$x$x;" * 60 + "$x",
        "cat <<A\n" + "\\\nA\n" * 30_000,
        "bash <<A\n" * 3_000 + "A\n" * 3_000,
        "$((" * 5_000,
        "bash " + "'a b' " * 20_000,
    ],
    ids=["values-in-values", "slashes", "documents", "brackets", "scripts"],
)
def test_no_line_holds_up_the_gate(command: str) -> None:
    assert not command_matches(command, "git push*")


@pytest.mark.parametrize(
    "url",
    [
        "HTTPS://API.Example.com/x",
        "http://api.example.com/x",
        "https://api.example.com:443/x",
        "https://api.example.com./x",
        "https://ann:b@api.example.com/x",
        " https://api.example.com/x",
    ],
)
def test_one_address_in_many_spellings_is_one(url: str) -> None:
    """http is made https by the tool itself."""
    rules = ["WebFetch(https://api.example.com/*)"]
    assert asked_before(rules, "WebFetch", {"url": url}, workspace="/w")
    assert not asked_before(rules, "WebFetch", {"url": "https://api.example.com:8443/x"}, workspace="/w")
