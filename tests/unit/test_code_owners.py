"""CODEOWNERS as the forges read it."""

from __future__ import annotations

import time

import pytest

from tasks_app.config.code_owners import CodeOwners, Dialect


def owners(text: str, path: str, dialect: Dialect = "github") -> list[str]:
    return [name for one in CodeOwners.parse(text, dialect).of(path) for name in one.owners]


#: From the documentation of GitHub about code owners.
GITHUB = """
*       @global-owner1 @global-owner2
*.js    @js-owner #This is an inline comment.
*.go docs@example.com
*.txt @octo-org/octocats
/build/logs/ @doctocat
docs/* docs@example.com
apps/ @octocat
/scripts/ @doctocat @octocat
**/logs @logger
/apps/github
my\\ folder/ @blank
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("README.md", ["@global-owner1", "@global-owner2"]),
        ("deep/down/app.js", ["@js-owner"]),
        ("main.go", ["docs@example.com"]),
        ("a/b.txt", ["@octo-org/octocats"]),
        ("build/logs/x", ["@logger"]),  # `**/logs` comes later
        ("build/readme", ["@global-owner1", "@global-owner2"]),
        ("docs/getting-started.md", ["docs@example.com"]),
        ("docs/build-app/troubleshooting.md", ["@global-owner1", "@global-owner2"]),
        ("x/docs/a.md", ["@global-owner1", "@global-owner2"]),
        ("x/apps/y/z.py", ["@octocat"]),
        ("scripts/run.sh", ["@doctocat", "@octocat"]),
        ("deeply/nested/logs/a", ["@logger"]),
        ("apps/github/x.py", []),
        ("my folder/x", ["@blank"]),
    ],
)
def test_github_takes_the_last_line_that_matches(path: str, expected: list[str]) -> None:
    assert owners(GITHUB, path) == expected


#: After the documentation of GitLab about sections.
GITLAB = """
* @default
README.md @doc-team
[Documentation][2] @docs-default
docs/
internal/README.md @insider
^[Database] @dba
/model/db/ @db-owner @@maintainer
!/model/db/generated.sql
config.yml
[DOCUMENTATION]
*.rst @rst
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.py", ["@default"]),
        ("x/README.md", ["@doc-team"]),
        ("x/docs/deep/a.md", ["@default", "@docs-default"]),
        ("x/internal/README.md", ["@doc-team", "@insider"]),
        ("model/db/x.sql", ["@default", "@db-owner"]),
        ("model/db/generated.sql", ["@default"]),
        ("lib/config.yml", ["@default", "@dba"]),
        ("docs/a.rst", ["@default", "@rst"]),
    ],
)
def test_gitlab_looks_at_each_section_by_itself(path: str, expected: list[str]) -> None:
    assert owners(GITLAB, path, "gitlab") == expected


FORGEJO = r"""
.*\.go @go
docs/.* @docs @acme/writers
docs/[^/]+\.md @md
(a|b)/.* @alternatives
!docs/.* @rest
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("cmd/main.go", ["@go", "@rest"]),
        ("main_go", ["@rest"]),
        ("docs/x/y.md", ["@docs", "@acme/writers"]),
        ("docs/y.md", ["@docs", "@acme/writers", "@md"]),
        ("a/x", ["@rest"]),  # an alternative is more than a pattern of paths can say
    ],
)
def test_forgejo_takes_every_line_that_matches(path: str, expected: list[str]) -> None:
    assert owners(FORGEJO, path, "forgejo") == expected


@pytest.mark.parametrize("dialect", ["github", "gitlab", "forgejo"])
def test_a_hostile_file_is_read_in_a_moment(dialect: Dialect) -> None:
    text = ("/" + "*a" * 200 + " @x\n") * 20 + "(.*)*" * 60 + " @x\n" + "[\\\n!\n/ @x\n# \\"
    began = time.process_time()
    owners(text, "a" * 250, dialect)
    assert time.process_time() - began < 5


def test_the_names_of_a_file_come_with_their_first_line() -> None:
    """Q1"""
    text = "# Owners\n* @ann @bob\n\n/a/ @ann\n[Docs] @acme/docs\n/docs/\n/x/ # @comment\n"
    owners = CodeOwners.parse(text, "gitlab", place="docs/CODEOWNERS")
    assert owners.names() == {"@ann": 2, "@bob": 2, "@acme/docs": 6}
    assert owners.place == "docs/CODEOWNERS"
