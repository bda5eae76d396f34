"""`cat-herder project`: add, list, configure, fetch and remove projects; their credentials for publishing."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, acting_user_or_none, add_user_argument, find_project
from tasks_app.cli.options import (
    add_credential_action,
    add_setting_arguments,
    changed_overrides,
    read_credential,
)
from tasks_app.cli.tables import projects_table, publishing_table, settings_table
from tasks_app.config.threshold import HIGHEST, LOWEST, NEW_PROJECT
from tasks_app.core.errors import BadInput
from tasks_app.git import committed_text
from tasks_app.models import Project, paths
from tasks_app.permissions import Principal, projects_visible_to, require_actor, require_maintainer
from tasks_app.schemas.projects import ProjectFetched, ProjectList, ProjectListed, ProjectRemoved
from tasks_app.schemas.publishing import PublishingOut
from tasks_app.services.projects.projects import add_project, fetch, remove_project
from tasks_app.services.projects.settings import (
    CONFIG_FILE,
    change_branch,
    change_settings,
    overrides_of,
    settings_in_effect,
)
from tasks_app.services.publishing.settings import (
    MANAGE_PUBLISHING,
    remove_credential,
    store_credential,
)


class Command(TerminalCommand):
    help = """\
Adds, lists, configures, fetches and removes projects. A project is a git repository: a folder on this
machine, or an https or ssh address. The portal works on a copy of its own, and writes to
yours only when you publish a result."""
    examples = """\
examples:
  cat-herder project add billing ~/code/billing
  cat-herder project add website git@example.org:team/website.git
  cat-herder project list
  cat-herder project settings billing --threshold 3 --ask-before 'Bash(git push*)'
  cat-herder project settings billing --reset threshold
  cat-herder project fetch billing     the newest commits; repairs the portal's copy if it is damaged
  cat-herder project publishing billing     where and how results are published
  cat-herder project credential billing --known-hosts hosts.txt < deploy_key
  cat-herder project credential website --username robot     asks for the token
  cat-herder project remove billing"""

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        add = actions.add_parser("add", help="add a repository under a name")
        add.add_argument("name", metavar="NAME", help="lower-case letters, digits, dots, dashes, underscores")
        add.add_argument("source", metavar="PATH", help="the repository's folder, or its https or ssh URL")
        add.add_argument(
            "--threshold",
            type=int,
            choices=range(LOWEST, HIGHEST + 1),
            default=NEW_PROJECT,
            help="how readily agents ask if cat-herder.yaml does not say so; %(default)s unless given",
        )
        actions.add_parser("list", help="show all projects")
        configure = actions.add_parser(
            "settings",
            help="show the settings of a project, or change overrides of its cat-herder.yaml",
            description="Show the settings. With options, change overrides first; they apply to new tasks.",
        )
        configure.add_argument("name", metavar="NAME")
        configure.add_argument("--branch", metavar="BRANCH", help="the branch that new tasks start from")
        add_setting_arguments(configure)
        again = actions.add_parser("fetch", help="fetch the source again, and repair the portal's copy of it")
        again.add_argument("name", metavar="NAME")
        publishing = actions.add_parser(
            "publishing", help="show where and how results are published; its page and the API change it"
        )
        publishing.add_argument("name", metavar="NAME")
        add_credential_action(actions)
        remove = actions.add_parser("remove", help="remove a project with its tasks and their history")
        remove.add_argument("name", metavar="NAME")
        remove.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        for name, one in actions.choices.items():
            one.add_argument("--json", action="store_true", help="print the outcome as JSON")
            if name != "list":
                add_user_argument(one)

    def work(self, options: dict[str, Any]) -> int:
        actions = {
            "add": self._add,
            "list": self._list,
            "settings": self._settings,
            "fetch": self._fetch,
            "publishing": self._publishing,
            "credential": self._credential,
            "remove": self._remove,
        }
        actions[options["action"]](options)
        return Exit.DONE

    def _add(self, options: dict[str, Any]) -> None:
        user = acting_user_or_none(options["username"])
        project = add_project(options["name"], options["source"], by=user, threshold=options["threshold"])
        if options["json"]:
            self.write_json(ProjectListed.from_row(project))
            return
        self.stdout.write(
            f"Project “{project.name}” is added: {project.source}, branch {project.branch}.\n"
            f"Its agents ask at threshold {options['threshold']} if cat-herder.yaml says nothing else.\n"
            f"Start a task: cat-herder run_task FILE --project {project.name}"
        )

    def _list(self, options: dict[str, Any]) -> None:
        projects = Project.objects.all()
        if options["json"]:
            self.write_json(ProjectList(projects=[ProjectListed.from_row(project) for project in projects]))
        elif not projects:
            self.stdout.write("There are no projects yet. Add one: cat-herder project add NAME PATH")
        else:
            self.screen_for(options).table(projects_table(projects))

    def _project(self, options: dict[str, Any]) -> tuple[Principal, Project]:
        principal = acting_principal(options["username"])
        return principal, find_project(options["name"], projects=projects_visible_to(principal))

    def _settings(self, options: dict[str, Any]) -> None:
        principal, project = self._project(options)
        repository = paths.repository(project)
        if options["branch"]:
            change_branch(project, options["branch"], by=principal)
        commit = repository.head(project.branch)
        if changes := changed_overrides(options):
            overrides = overrides_of(project).model_copy(update=changes)
            change_settings(project, overrides, by=principal, commit=commit)
        if options["json"]:
            self.write_json(overrides_of(project))
            return
        text = committed_text(repository, commit=commit, path=CONFIG_FILE)
        self.screen_for(options).table(settings_table(settings_in_effect(project, text)))

    def _fetch(self, options: dict[str, Any]) -> None:
        principal, project = self._project(options)
        require_actor(principal, project)
        repaired = fetch(project, thorough=True)
        if options["json"]:
            self.write_json(ProjectFetched.from_row(project, repaired=repaired))
            return
        for sentence in repaired:
            self.stdout.write(sentence)
        self.stdout.write(f"Project “{project.name}” is fetched: {project.source}.")

    def _publishing(self, options: dict[str, Any]) -> None:
        self._report_publishing(self._project(options)[1], options)

    def _credential(self, options: dict[str, Any]) -> None:
        principal, project = self._project(options)
        require_maintainer(principal, project, MANAGE_PUBLISHING)
        if options["remove"]:
            remove_credential(project, by=principal)
        else:
            store_credential(project, read_credential(project, options), by=principal)
        self._report_publishing(project, options)

    def _report_publishing(self, project: Project, options: dict[str, Any]) -> None:
        if options["json"]:
            self.write_json(PublishingOut.from_row(project))
        else:
            self.screen_for(options).table(publishing_table(project))

    def _remove(self, options: dict[str, Any]) -> None:
        principal, project = self._project(options)
        if not options["yes"]:
            self._confirm(project)
        removed = ProjectRemoved.from_row(project)
        remove_project(project, by=principal)
        if options["json"]:
            self.write_json(removed)
        else:
            self.stdout.write(f"Project “{project.name}” is removed. {project.source} was not touched.")

    def _confirm(self, project: Project) -> None:
        """Raise BadInput unless the person types the project's name."""
        if not sys.stdin.isatty():
            raise BadInput(f"Cannot ask for confirmation here; use --yes to remove “{project.name}”.")
        waiting = project.tasks.filter(questions__state="open").distinct().count()
        self.stderr.write(
            f"This removes “{project.name}” with {project.tasks.count()} tasks ({waiting} waiting for an "
            f"answer), their logs and branches. {project.source} is not touched."
        )
        self.stderr.write("Type the project's name to continue: ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip() != project.name:
            raise BadInput("Not confirmed; nothing was removed.")
