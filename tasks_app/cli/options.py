"""Options that several commands share, and their values."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from getpass import getpass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.lookup import find_project
from tasks_app.config.project_settings import SETTINGS
from tasks_app.config.setting import Setting
from tasks_app.config.task_file import names_to_ask
from tasks_app.config.threshold import threshold_from_text
from tasks_app.core.errors import BadInput
from tasks_app.models import CredentialKind, Project, Question
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.services.decisions.answering import (
    DecisionInput,
    Remember,
    Stance,
    StanceChoice,
)
from tasks_app.services.decisions.content import split_paths
from tasks_app.services.publishing.settings import NewCredential, credential_kind_for, target_of


def add_creation_arguments(parser: CommandParser, *, what: str, source: str) -> None:
    """Add the options of commands that create or resume a task or a sequence."""
    parser.add_argument("--project", metavar="NAME", help=f"the project; needed with {source.upper()}")
    parser.add_argument("--threshold", metavar="N", help=f"{SETTINGS['threshold'].help} For a new {what}.")
    parser.add_argument("--pipeline", metavar="NAME", help=f"the pipeline to run through; for a new {what}")
    parser.add_argument(
        "--ask", metavar="NAME", action="append", default=[],
        help="whom its questions are put to, instead of those in the front matter: a user name, an e-mail "
        f"address or a group; can be repeated. For a new {what}",
    )  # fmt: skip
    parser.add_argument(
        "--new", action="store_true", help=f"make a new {what} even if an earlier one has not ended"
    )


def add_terminal_arguments(parser: CommandParser) -> None:
    """Add the options of commands that run tasks in this terminal."""
    parser.add_argument(
        "--no-input",
        action="store_true",
        help="never prompt: when the agent asks, say how to answer and exit with code 3",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on stdout at the end; progress goes to stderr",
    )


def add_setting_arguments(parser: CommandParser) -> None:
    """Add an option for each setting of a project, and one that removes overrides."""
    for setting in SETTINGS.values():
        values = "|".join(choice for choice, _ in setting.kind.choices)
        parser.add_argument(
            setting.option,
            dest=_destination(setting),
            metavar=values or "VALUE",
            help=f"{setting.label}: {setting.text_help}".replace("%", "%%"),
        )
    parser.add_argument(
        "--reset",
        action="append",
        default=[],
        choices=[setting.option.removeprefix("--") for setting in SETTINGS.values()],
        metavar="SETTING",
        help="remove the override of a setting, for example: --reset threshold; can be repeated",
    )


def changed_overrides(options: dict[str, Any]) -> dict[str, Any]:
    """Return the overrides that were given as options, by name. Raise BadInput that names the option."""
    changes: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        text = options[_destination(setting)]
        if text is not None:
            try:
                changes[name] = setting.kind.parse(text)
            except BadInput as error:
                raise BadInput(error.message, where=setting.option) from None
        if setting.option.removeprefix("--") in options["reset"]:
            changes[name] = setting.kind.unset
    return changes


def _destination(setting: Setting) -> str:
    """Return the key of the setting among the options; other options may have the setting's name."""
    return f"setting_{setting.name}"


def chosen_project(options: dict[str, Any], principal: Principal) -> Project | None:
    """Return the project of `--project`. Raises BadInput if the user sees no such project."""
    name = options["project"]
    if name:
        return find_project(name, projects=projects_visible_to(principal))
    return None


def creation_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return `threshold`, `pipeline` and `ask` of a new task or sequence. Raises BadInput."""
    threshold = options["threshold"]
    return {
        "threshold": None if threshold is None else threshold_from_text(threshold, where="--threshold"),
        "pipeline": options["pipeline"],
        "ask": names_to_ask(options["ask"], where="--ask"),
    }


def refuse_creation_options(options: dict[str, Any], *, what: str, source: str) -> None:
    """Raise BadInput if an option for new ones is given together with an id, where it has no effect."""
    for name in ("threshold", "pipeline", "ask", "new"):
        if options.get(name):
            raise BadInput(
                f"--{name} is for a new {what}, made from a {source}.", where=f"{what} {options[what]}"
            )


def resolve_path(path: str, project: Project) -> Path:
    """Resolve a path against the working directory, else against the project's source folder."""
    in_source = Path(project.source) / path
    if not Path(path).exists() and Path(project.source).is_dir() and in_source.exists():
        return in_source
    return Path(path)


# `cat-herder project credential`.


def add_credential_action(actions: Any) -> None:
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


def read_credential(project: Project, options: dict[str, Any]) -> NewCredential:
    """Read the secret, never from the arguments: every user of the machine can read those."""
    if options["app_id"]:
        return NewCredential(CredentialKind.GITHUB_APP, _read_key(), username=options["app_id"])
    if credential_kind_for(target_of(project)) is CredentialKind.TOKEN:
        token = getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
        return NewCredential(CredentialKind.TOKEN, token, username=options["token_user"] or "")
    known_hosts, api_token = "", ""
    if options["known_hosts"]:
        known_hosts = _read_file(options["known_hosts"])
    key = _read_key()
    if options["api_token"]:
        api_token = _read_api_token()
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


# Options that say how far an answer holds, and what it means for decisions (D2, D6).


def add_decision_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--remember",
        metavar="SCOPE",
        choices=["task", "paths", "step", "project"],
        default="task",
        help="how far the answer holds: task (default), paths (with --path), step (the one that asked) or "
        "project. All but task make it a decision, which agents of later tasks read",
    )
    parser.add_argument(
        "--path", metavar="GLOB", action="append", default=[], help="for --remember paths; repeated for more"
    )
    parser.add_argument(
        "--statement",
        metavar="TEXT",
        action="append",
        default=[],
        help="what is decided; else the chosen option with its description. Of a question with several items "
        "N=TEXT, repeated: only these items are remembered",
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="why it is decided so")
    parser.add_argument(
        "--decision",
        metavar="D-N=STANCE",
        action="append",
        default=[],
        help="what the answer means for a decision: agree, replace, exception, limit:GLOB,… (where it "
        "still holds), or unaffected (it contradicts nothing)",
    )


def says_something(options: dict[str, Any]) -> bool:
    """Return whether the options say something about decisions."""
    return options["remember"] != "task" or any(options[one] for one in ("path", "statement", "decision"))


def decision_input(question: Question, options: dict[str, Any]) -> DecisionInput:
    """Return what the options say about decisions. Raises BadInput, which names the option."""
    scope, paths = options["remember"], options["path"]
    if paths and scope != "paths":
        raise BadInput("goes with --remember paths", where="--path")
    if scope == "task" and (options["statement"] or options["reason"]) and not options["decision"]:
        raise BadInput("say how far the answer holds: project, paths or step", where="--remember")
    remember = Remember(scope, paths=paths, reason=options["reason"])
    said = [stance_option(text) for text in options["decision"]]
    stances = dict(said)
    if len(stances) < len(said):
        raise BadInput("say once what the answer means for a decision", where="--decision")
    given = options["statement"]
    if len(question.items) == 1:
        if len(given) > 1:
            raise BadInput("give one", where="--statement")
        return DecisionInput(replace(remember, statement="".join(given)), stances)
    statements = None
    if given:
        statements = dict(_statement(question, text) for text in given)
    return DecisionInput.with_statements(remember, statements, stances)


def _statement(question: Question, text: str) -> tuple[str, str]:
    """Return an item's question and its statement."""
    found = re.fullmatch(r"([0-9]{1,3})=(.*)", text, re.DOTALL)
    number = int(found[1]) if found else 0
    if found is None or not 1 <= number <= len(question.items):
        raise BadInput(
            f"“{text[:60]}” must be N=TEXT with N from 1 to {len(question.items)}", where="--statement"
        )
    return str(question.items[number - 1]["question"]), found[2]


#: What people type, after the words of the card, for the names of the API.
_STANCES = {"replace": Stance.SUPERSEDE, "limit": Stance.NARROW}


def stance_option(text: str) -> tuple[int, StanceChoice]:
    found = re.fullmatch(r"(?:[Dd]-)?([0-9]{1,9})=([a-z]+)(?::(.+))?", text)
    stance = ""
    if found is not None:
        stance = _STANCES.get(found[2], found[2])
    if found is None or stance not in list(Stance):
        raise BadInput(
            f"“{text[:60]}” must be like D-17=replace, with agree, replace, exception, unaffected or "
            "limit:src/**",
            where="--decision",
        )
    return int(found[1]), StanceChoice(stance, split_paths(found[3] or ""))
