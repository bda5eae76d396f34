"""`cat-herder decisions`: the decisions of a project, and what happened to one of them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import prefetch_related_objects

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_project
from tasks_app.cli.tables import decisions_table
from tasks_app.core.errors import BadInput
from tasks_app.models import DECISION_SHOWN_WITH, Decision, DecisionState, Project
from tasks_app.models.decision import ALL, CURRENT, REVIEW
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.schemas.questions import DecisionWithHistory
from tasks_app.services.decisions.records import export_decisions, import_decisions, preview_import


class Command(TerminalCommand):
    help = """\
Lists the decisions of a project that hold, the newest first, or shows one with its history. A decision is an
answer that holds beyond its task: agents read it, and it is cited as D-17."""
    examples = """\
examples:
  cat-herder decisions --project billing
  cat-herder decisions --project billing rounding
  cat-herder decisions --project billing D-17
  cat-herder decisions --project billing --state retired --json
  cat-herder decisions --project billing --import docs/adr/0012-cents.md --dry-run
  cat-herder decisions --project billing --export"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("words", metavar="WORDS", nargs="*", help="only those with all words, or D-17")
        parser.add_argument("--project", metavar="NAME", required=True, help="the project")
        parser.add_argument(
            "--state",
            metavar="STATE",
            default=CURRENT,
            help=f"{', '.join(DecisionState.values)}, all, or current: active and proposed ones (default)",
        )
        parser.add_argument("--review", action="store_true", help="only those at which somebody should look")
        parser.add_argument(
            "--import",
            dest="import_paths",
            metavar="PATH",
            nargs="*",
            help="propose the decisions that records (ADRs) of the project's branch state, or only the files "
            "that are named",
        )
        parser.add_argument("--accept", action="store_true", help="with --import: they hold already")
        parser.add_argument("--dry-run", action="store_true", help="with --import: only show what is found")
        parser.add_argument(
            "--export",
            action="store_true",
            help="write the decisions as files (ADRs) on the branch of a task, to review and publish",
        )
        parser.add_argument("--json", action="store_true", help="as JSON, with the history of each")
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        principal = acting_principal(options["username"])
        project = find_project(options["project"], projects=projects_visible_to(principal))
        if options["import_paths"] is not None:
            return self._import(project, principal, options)
        if options["export"]:
            return self._export(project, principal)
        state, words = options["state"], " ".join(options["words"])
        known = [*DecisionState.values, ALL, CURRENT]
        if state not in known:
            raise BadInput(f"must be one of {', '.join(known)}, not {state}", where="--state")
        if options["review"]:
            state = REVIEW
        elif state == CURRENT and Decision.is_label(words):
            state = ALL
        rows = project.decisions.search(words).listed_as(state).with_counts()
        found = list(rows.select_related(*DECISION_SHOWN_WITH).order_by("-number"))
        if options["json"]:
            prefetch_related_objects(found, "events__user", "replaced_by", "exceptions")
            self.write_json([DecisionWithHistory.from_row(one).model_dump(mode="json") for one in found])
            return Exit.DONE
        if not found:
            none = "No decisions yet."
            if options["words"]:
                none = "There is no such decision."
            elif options["review"]:
                none = "No decision to review."
            self.stderr.write(none)
            return Exit.DONE
        prefetch_related_objects(found, "replaced_by", "exceptions")
        self.screen_for(options).table(decisions_table(found))
        return Exit.DONE

    def _export(self, project: Project, principal: Principal) -> int:
        export = export_decisions(project, by=principal)
        if export.task is None:
            self.stderr.write(f"Nothing to export: the branch {project.branch} has all decisions as files.")
        elif not export.is_new:
            self.stderr.write(
                f"Nothing has changed since task {export.task.pk}, branch {export.task.branch}."
            )
        else:
            self.stdout.write(f"Task {export.task.pk}: {export.task.title}, branch {export.task.branch}")
        return Exit.DONE

    def _import(self, project: Project, principal: Principal, options: dict[str, Any]) -> int:
        """Import what is suggested, or show it with --dry-run."""
        preview = preview_import(project, options["import_paths"])
        for fault in preview.faults:
            self.stderr.write(fault)
        for one in preview.decisions:
            if not one.is_suggested:
                why = one.found.ended or f"imported as {one.imported_as}"
                self.stderr.write(f"Left out: {one.found.source}, {why}.")
        chosen = [(one, one.found.statement) for one in preview.decisions if one.is_suggested]
        if options["dry_run"]:
            for one, statement in chosen:
                self.stdout.write(f"{one.found.source}  {statement}")
            self.stderr.write(f"{len(chosen)} to import.")
            return Exit.DONE
        made = import_decisions(project, chosen, by=principal, accept=options["accept"])
        for decision in made:
            self.stdout.write(f"{decision.label}  {decision.source}  {decision.statement}")
        state = "active" if options["accept"] else "proposed"
        self.stderr.write(f"{len(made)} imported as {state}.")
        return Exit.DONE
