"""Decisions of a project: list, page, forms, import and export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.db.models import Exists, OuterRef
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.config.decision_records import MAX_REASON, MAX_STATEMENT
from tasks_app.core.amounts import counted
from tasks_app.core.errors import BadInput, CatHerderError, NotAllowed, WorkspaceError
from tasks_app.core.text import storable_text
from tasks_app.git import blob_difference
from tasks_app.models import (
    Decision,
    DecisionEventKind,
    DecisionScope,
    DecisionState,
    Project,
    Task,
    paths,
)
from tasks_app.models.decision import ALL, CURRENT, REVIEW, USES
from tasks_app.permissions import decision_of_or_404, require_actor
from tasks_app.services.decisions import changes
from tasks_app.services.decisions.citing import cited_files
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.decisions.records import (
    ImportPreview,
    export_decisions,
    import_decisions,
    preview_import,
)
from tasks_app.web.access import current_user, may_act, principal_of, project_or_404
from tasks_app.web.counting import CappedPaginator, tabs_of
from tasks_app.web.questions.cards import diff_lines

_SCOPES = [
    (DecisionScope.PROJECT.value, "The whole project"),
    (DecisionScope.PATHS.value, "These paths"),
    (DecisionScope.STEP.value, "One step"),
]


class DecisionForm(forms.Form):
    """The content of a decision; set as `content` by `is_valid()`, for the service."""

    statement = forms.CharField(max_length=MAX_STATEMENT, widget=forms.Textarea({"rows": 3}))
    reason = forms.CharField(max_length=MAX_REASON, required=False, widget=forms.Textarea({"rows": 3}))
    scope = forms.ChoiceField(choices=_SCOPES, initial=DecisionScope.PROJECT, widget=forms.RadioSelect)
    paths = forms.CharField(
        max_length=20_000,
        required=False,
        widget=forms.Textarea({"rows": 2, "placeholder": "src/billing/**", "spellcheck": "false"}),
    )
    step = forms.CharField(max_length=100, required=False, widget=forms.TextInput({"autocomplete": "off"}))
    review_after = forms.DateField(
        required=False,
        widget=forms.DateInput({"type": "date"}, format="%Y-%m-%d"),
        error_messages={"invalid": "Enter a day such as 2027-01-31."},
    )

    content: DecisionContent

    @classmethod
    def from_decision(cls, decision: Decision) -> DecisionForm:
        """Return the form filled with what a decision says."""
        return cls(
            initial={
                "statement": decision.statement,
                "reason": decision.reason,
                "scope": decision.scope,
                "paths": "\n".join(decision.paths),
                "step": decision.step,
                "review_after": None if decision.is_due else decision.review_after,
            }
        )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not self.errors:
            # The page hides the field of a scope that is not chosen; what it still has does not count.
            for field in {"paths", "step"} - {given["scope"]}:
                given[field] = ""
            content = DecisionContent(**{**given, "paths": tuple(given["paths"].splitlines())})
            try:
                self.content = content.checked()
            except BadInput as error:
                self.add_refusal(error)
        return given

    def add_refusal(self, error: Exception) -> None:
        """Show what a service refuses, beside its field if it names one."""
        field, text = None, str(error)
        if isinstance(error, BadInput):
            text = error.message
            if error.where in self.fields:
                field = error.where
        self.add_error(field, text[:1].upper() + text[1:])


PER_PAGE = 30
_MOST_WORDS = 200
#: The newest entries of a history, and the tasks that used a decision.
_MOST_EVENTS, _MOST_TASKS = 200, 50

_TABS = {
    CURRENT: "Active or proposed",
    REVIEW: "To review",
    DecisionState.PROPOSED.value: "Proposed",
    DecisionState.SUPERSEDED.value: "Superseded",
    DecisionState.RETIRED.value: "Retired",
    ALL: "All",
}


@dataclass(frozen=True)
class DecisionFilters:
    """The search and the state in the URL; an unknown state is the default."""

    q: str = ""
    state: str = CURRENT

    @classmethod
    def from_request(cls, request: HttpRequest) -> DecisionFilters:
        given = {one.name: storable_text(request.GET.get(one.name, "")) for one in fields(cls)}
        if given["state"] not in _TABS:
            given["state"] = CURRENT
        return cls(given["q"][:_MOST_WORDS].strip(), given["state"])

    def query(self, state: str = "") -> str:
        """Return the part of the URL for these filters, or for the same words in another state."""
        state = state or self.state
        wanted = {"q": self.q, "state": "" if state == CURRENT else state}
        return urlencode({name: value for name, value in wanted.items() if value})


def decisions(request: HttpRequest, project_id: int) -> HttpResponse:
    """List the decisions of a project, those to review first."""
    project = project_or_404(request, project_id)
    filters = DecisionFilters.from_request(request)
    found = project.decisions.search(filters.q)
    ordered = found.listed_as(filters.state).to_review_first()
    shown = (
        ordered.with_counts()
        .select_related("decided_by", "question", "exception_to")
        .prefetch_related("exceptions")
    )
    page = CappedPaginator(shown, PER_PAGE).get_page(request.GET.get("page"))
    rows_of_tabs = {state: found.listed_as(state) for state in _TABS}
    context = {
        "project": project,
        "filters": filters,
        "query": filters.query(),
        "tabs": tabs_of(current_user(request), _TABS, rows_of_tabs, filters.query),
        "page": page,
        "may_act": may_act(request, project),
    }
    return render(request, "questions/decisions/list.html", context)


def decision(request: HttpRequest, project_id: int, number: int) -> HttpResponse:
    """Show a decision: what it says, its code, where it came from, and everything that happened to it."""
    project = project_or_404(request, project_id)
    found = decision_of_or_404(project, number)
    events = found.events.select_related("user", "task", "question").order_by("-at", "-pk")
    confirmed = found.events.filter(kind__in=[DecisionEventKind.DECIDED, DecisionEventKind.CONFIRMED])
    used = found.events.filter(kind__in=USES, task=OuterRef("pk"))
    tasks = Task.objects.filter(project=project).filter(Exists(used)).defer("text", "body")
    context = {
        "project": project,
        "decision": found,
        "chain": _chain(found),
        "exceptions": list(found.exceptions.order_by("number")[:_MOST_TASKS]),
        "events": list(events[:_MOST_EVENTS]),
        "most_events": _MOST_EVENTS,
        "tasks": list(tasks.order_by("-pk")[:_MOST_TASKS]),
        "files": cited_files(found) if found.cites else [],
        "may_act": may_act(request, project),
        "has_confirmed": confirmed.filter(user=current_user(request)).exists(),
    }
    return render(request, "questions/decisions/page.html", context)


def _chain(found: Decision) -> list[Decision]:
    """Return what it replaced and what replaced it, the oldest first; empty if neither is the case."""
    replacing = found.project.decisions.filter(replaces__isnull=False)
    before = dict(replacing.values_list("pk", "replaces_id"))
    after: dict[int | None, list[int]] = {}
    for new, old in before.items():
        after.setdefault(old, []).append(new)
    chained, following = {found.pk}, [found.pk]
    while following:
        pk = following.pop()
        near = [*after.get(pk, ()), *filter(None, [before.get(pk)])]
        following += [one for one in near if one not in chained]
        chained |= set(near)
    if len(chained) == 1:
        return []
    rows = Decision.objects.filter(pk__in=chained).select_related("decided_by")
    return list(rows.order_by("number")[:_MOST_EVENTS])


def decision_file(request: HttpRequest, project_id: int, number: int) -> HttpResponse:
    """Show what has changed in a cited file, `?path=`, since the decision was made."""
    project = project_or_404(request, project_id)
    found = decision_of_or_404(project, number)
    wanted = storable_text(request.GET.get("path", ""))
    file = next((one for one in cited_files(found) or [] if one.path == wanted), None)
    if file is None and "path" in request.GET:
        raise Http404("The decision does not cite this file.")
    context: dict[str, Any] = {"project": project, "decision": found, "file": file}
    if file and file.now:
        try:
            text = blob_difference(paths.repository(project), old=file.then, new=file.now)
            context["lines"] = diff_lines(text)
        except WorkspaceError:
            context["is_lost"] = True
    return render(request, "questions/decisions/file.html", context)


@require_http_methods(["GET", "POST"])
def decision_new(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    return _edit(
        request,
        project,
        lambda form: changes.make_decision(project, form.content, by=principal_of(request)),
    )


@require_http_methods(["GET", "POST"])
def decision_revise(request: HttpRequest, project_id: int, number: int) -> HttpResponse:
    """Replace the decision by a new one; the form is filled with what the old one says."""
    project = project_or_404(request, project_id)
    old = decision_of_or_404(project, number)
    if request.method == "GET" and not (old.is_active or old.is_proposed):
        messages.error(request, f"{old.label} is {old.get_state_display()} and cannot be revised.")
        return redirect("decision", project.pk, number)
    return _edit(
        request,
        project,
        lambda form: changes.revise(old, form.content, by=principal_of(request)),
        old,
    )


def _edit(
    request: HttpRequest,
    project: Project,
    store: Callable[[DecisionForm], Decision],
    old: Decision | None = None,
) -> HttpResponse:
    """Show the form of a new decision, or store what was entered and show the decision."""
    if refused := refuse_viewer(request, project):
        return refused
    if request.method == "GET":
        return _form_page(request, project, DecisionForm.from_decision(old) if old else DecisionForm(), old)
    form = DecisionForm(request.POST)
    if form.is_valid():
        try:
            made = store(form)
        except CatHerderError as error:
            form.add_refusal(error)
        else:
            messages.success(request, f"{made.label} is now active.")
            return redirect("decision", project.pk, made.number)
    return _form_page(request, project, form, old, status=400)


def refuse_viewer(request: HttpRequest, project: Project) -> HttpResponse | None:
    """Lead those who may only look from a form to the list, which says why. None for members."""
    try:
        require_actor(principal_of(request), project)
    except NotAllowed as error:
        if request.method == "POST":
            raise
        messages.error(request, str(error))
        return redirect("decisions", project.pk)
    return None


def _form_page(
    request: HttpRequest, project: Project, form: DecisionForm, old: Decision | None, *, status: int = 200
) -> HttpResponse:
    context = {"project": project, "form": form, "old": old}
    return render(request, "questions/decisions/form.html", context, status=status)


@require_POST
def decision_confirm(request: HttpRequest, project_id: int, number: int) -> HttpResponse:
    """Say that the decision is right; a proposed one holds from then on."""
    return _act(request, project_id, number, changes.confirm, "confirmed")


@require_POST
def decision_keep(request: HttpRequest, project_id: int, number: int) -> HttpResponse:
    """Say after a look that the decision still holds."""
    return _act(request, project_id, number, changes.mark_reviewed, "kept", note=request.POST.get("note", ""))


@require_POST
def decision_retire(request: HttpRequest, project_id: int, number: int) -> HttpResponse:
    return _act(request, project_id, number, changes.retire, "retired", reason=request.POST.get("reason", ""))


@require_POST
def decision_restore(request: HttpRequest, project_id: int, number: int) -> HttpResponse:
    return _act(request, project_id, number, changes.restore, "restored")


def _act(
    request: HttpRequest,
    project_id: int,
    number: int,
    action: Callable[..., Decision],
    done: str,
    **values: str,
) -> HttpResponse:
    """Run the action of a button. If it is refused, the decision's page says why."""
    found = decision_of_or_404(project_or_404(request, project_id), number)
    try:
        action(found, by=principal_of(request), **values)
        messages.success(request, f"{found.label} {done}.")
    except NotAllowed:
        raise
    except CatHerderError as error:
        messages.error(request, str(error))
    return redirect("decision", project_id, number)


@require_http_methods(["GET", "POST"])
def decision_import(request: HttpRequest, project_id: int) -> HttpResponse:
    """Show what the files of the project's branch state, or import what was chosen."""
    project = project_or_404(request, project_id)
    if refused := refuse_viewer(request, project):
        return refused
    try:
        preview = preview_import(project)
    except CatHerderError as error:
        return _page(request, project, ImportPreview(faults=[str(error)]))
    if request.method == "GET":
        return _page(request, project, preview)
    return _import(request, project, preview)


def _import(request: HttpRequest, project: Project, preview: ImportPreview) -> HttpResponse:
    picked, accept = set(request.POST.getlist("pick")), "accept" in request.POST
    chosen = [
        (one, request.POST.get(f"statement-{one.key}", one.found.statement))
        for one in preview.decisions
        if one.key in picked
    ]
    if len(chosen) < len(picked):
        return _page(request, project, preview, "The files have changed meanwhile. Choose again.")
    if not chosen:
        return _page(request, project, preview, "Choose at least one decision.")
    try:
        made = import_decisions(project, chosen, by=principal_of(request), accept=accept)
    except BadInput as error:
        return _page(request, project, preview, f"Nothing was imported. A statement {error.message}.")
    except CatHerderError as error:
        return _page(request, project, preview, str(error))
    messages.success(request, f"Imported {counted(len(made), 'decision')}.")
    return redirect("decisions", project.pk)


def _page(request: HttpRequest, project: Project, preview: ImportPreview, fault: str = "") -> HttpResponse:
    """Show the decisions that were found. What was chosen and edited stays if it was refused."""
    posted = request.method == "POST"
    picked = set(request.POST.getlist("pick"))
    if not posted:
        picked = {one.key for one in preview.decisions if one.is_suggested}
    rows = [
        (one, one.key in picked, request.POST.get(f"statement-{one.key}", one.found.statement))
        for one in preview.decisions
    ]
    context = {
        "project": project,
        "rows": rows,
        "faults": preview.faults,
        "fault": fault,
        "accept": "accept" in request.POST,
    }
    return render(request, "questions/decisions/import.html", context, status=400 if posted else 200)


@require_http_methods(["GET", "POST"])
def decision_export(request: HttpRequest, project_id: int) -> HttpResponse:
    """Write the decisions as files and show the task with them. A reloaded address exports nothing."""
    project = project_or_404(request, project_id)
    if request.method == "GET":
        return redirect("decisions", project.pk)
    try:
        export = export_decisions(project, by=principal_of(request))
    except NotAllowed:
        raise
    except CatHerderError as error:
        messages.error(request, str(error))
        return redirect("decisions", project.pk)
    if export.task is None:
        messages.info(request, f"Nothing to export: the branch {project.branch} has all decisions as files.")
        return redirect("decisions", project.pk)
    if not export.is_new:
        messages.info(request, "Nothing has changed since this export.")
    return redirect("task", export.task.pk)
