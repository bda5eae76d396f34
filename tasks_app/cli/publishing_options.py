"""The options of `manage.py project publishing` and `project credential`."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Any

from tasks_app.core.errors import BadInput
from tasks_app.forges.port import ForgeKind
from tasks_app.models import CredentialKind, Project
from tasks_app.services.publishing.settings import NewCredential, credential_kind_for, target_of


def add_publishing_arguments(actions: Any) -> None:
    """Add both actions to those of `project`."""
    publishing = actions.add_parser(
        "publishing",
        help="show where and how results are published, or change it",
        description="Show where and how results are published. With options, change that first.",
    )
    publishing.add_argument("name", metavar="NAME")
    publishing.add_argument("--url", help="publish to this repository; an empty text means to the source")
    publishing.add_argument(
        "--protect",
        action="append",
        metavar="PATTERN",
        help="never publish to branches of this pattern; may be repeated, and replaces all patterns",
    )
    publishing.add_argument("--author", help="author of squashed commits: NAME <ADDRESS>")
    publishing.add_argument(
        "--approvals",
        type=int,
        metavar="N",
        help="approvals that a result needs first, not counting one by who created the task",
    )
    publishing.add_argument(
        "--forge", choices=["", *ForgeKind], metavar="KIND",
        help=f"what the repository is at: {', '.join(ForgeKind)}; an empty text means as its host says",
    )  # fmt: skip
    publishing.add_argument(
        "--forge-api-url", metavar="URL", help="the forge's API, if its host does not say"
    )
    publishing.add_argument(
        "--pull-requests-to", metavar="OWNER/NAME",
        help="where pull requests go, if the repository is a fork; an empty text means to itself",
    )  # fmt: skip
    credential = actions.add_parser(
        "credential",
        help="store the credential for publishing, or remove it",
        description="Store a token (for an https URL) or a private key (for an ssh URL). It is read from "
        "standard input, or asked for in a terminal.",
    )
    credential.add_argument("name", metavar="NAME")
    credential.add_argument("--username", dest="token_user", metavar="USER", help="the user of the token")
    credential.add_argument(
        "--known-hosts", metavar="FILE", help="the host keys of the server, as ssh-keyscan prints them"
    )
    credential.add_argument(
        "--api-token", action="store_true", help="with a key: ask for a token for pull requests, too"
    )
    credential.add_argument("--app-id", metavar="ID", help="the key is that of a GitHub app with this id")
    credential.add_argument("--remove", action="store_true", help="remove the stored credential")


def changed_publishing(options: dict[str, Any]) -> dict[str, Any]:
    """Return the values that were given, by parameter of `change_publishing`."""
    protect = options["protect"]
    given = {
        "url": options["url"],
        "protected_branches": None if protect is None else "\n".join(protect),
        "author": options["author"],
        "required_approvals": options["approvals"],
        "forge": options["forge"],
        "forge_api_url": options["forge_api_url"],
        "pull_request_repository": options["pull_requests_to"],
    }
    return {name: value for name, value in given.items() if value is not None}


def read_credential(project: Project, options: dict[str, Any]) -> NewCredential:
    """Read the secret, never from the arguments: every user of the machine can read those."""
    if options["app_id"]:
        return NewCredential(CredentialKind.GITHUB_APP, _read_key(), username=options["app_id"])
    if credential_kind_for(target_of(project)) is CredentialKind.TOKEN:
        token = getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
        return NewCredential(CredentialKind.TOKEN, token, username=options["token_user"] or "")
    known_hosts = _read_file(options["known_hosts"]) if options["known_hosts"] else ""
    key = _read_key()
    api_token = _read_api_token() if options["api_token"] else ""
    return NewCredential(CredentialKind.SSH_KEY, key, known_hosts=known_hosts, api_token=api_token)


def _read_api_token() -> str:
    """Ask for the token in the terminal: standard input is the key."""
    try:
        return getpass("API token: ")
    except EOFError:
        raise BadInput("a terminal is needed to ask for the API token", where="--api-token") from None


def _read_key() -> str:
    if sys.stdin.isatty():
        raise BadInput("give the private key on standard input: … < KEYFILE", where="credential")
    return sys.stdin.read()


def _read_file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInput(f"{name} cannot be read: {error}", where="--known-hosts") from None
