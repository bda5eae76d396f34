"""Publishing a result from its page, the settings of it in a project, and the webhook of a forge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from allauth.core import ratelimit
from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.config.repository_settings import PublishConfig, publish_from_json
from tasks_app.core.errors import BadInput
from tasks_app.core.phases import Phase
from tasks_app.forges.port import ForgeKind
from tasks_app.models import (
    Channel,
    CredentialKind,
    Project,
    Publication,
    PublicationState,
    PullRequest,
    ReviewVerdict,
    Task,
)
from tasks_app.permissions import Principal, may_act, may_maintain, require_maintainer
from tasks_app.services.publishing.publications import (
    LONGEST_MESSAGE,
    lacks_one_approval,
    missing_approvals,
    publication_hindrances,
    publish,
)
from tasks_app.services.publishing.pull_request_text import commit_message
from tasks_app.services.publishing.pull_requests import let_agent_merge, newest_pull_request, why_not_merge
from tasks_app.services.publishing.settings import (
    MANAGE_PUBLISHING,
    NewCredential,
    called_project,
    change_publishing,
    create_webhook_secret,
    credential_fault,
    credential_kind_for,
    forge_address_of,
    pull_request_hindrance,
    receive_call,
    remove_credential,
    remove_webhook_secret,
    store_credential,
    stored_credential,
    target_of,
    webhook_url,
)
from tasks_app.services.reviews import approvals_of, send_review
from tasks_app.web.access import principal_of, project_or_404, run_action, task_or_404

_MACHINE = {"autocomplete": "off", "spellcheck": "false", "class": "machine"}


class _WriteOnlyText(forms.Textarea):
    """Never shows what was entered, also not after an error. The browser keeps no draft of it."""

    def __init__(self) -> None:
        super().__init__(_MACHINE | {"rows": "5", "data-secret": "true"})

    def format_value(self, value: Any) -> str:
        return ""


class PublishingForm(forms.Form):
    """The repository, protected branches, author and required approvals. The service checks the values."""

    url = forms.CharField(required=False, max_length=500, widget=forms.TextInput(_MACHINE))
    protected_branches = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(_MACHINE | {"rows": "5"})
    )
    author = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput({"autocomplete": "off", "placeholder": "Name <address@example.org>"}),
    )

    forge = forms.ChoiceField(
        required=False,
        choices=[("", "Detect from the host"), *((kind.value, kind.label) for kind in ForgeKind)],
    )
    forge_api_url = forms.CharField(required=False, max_length=500, widget=forms.TextInput(_MACHINE))
    pull_request_repository = forms.CharField(
        required=False, max_length=200, widget=forms.TextInput(_MACHINE | {"placeholder": "owner/name"})
    )
    required_approvals = forms.IntegerField(min_value=0, max_value=20, initial=0)

    @staticmethod
    def initial_values(project: Project) -> dict[str, str | int]:
        return {
            "url": project.publish_url,
            "protected_branches": project.protected_branches,
            "author": project.publish_author,
            "forge": project.forge,
            "forge_api_url": project.forge_api_url,
            "pull_request_repository": project.pull_request_repository,
            "required_approvals": project.required_approvals,
        }


class TokenForm(forms.Form):
    """A token for an https URL."""

    username = forms.CharField(max_length=200, widget=forms.TextInput(_MACHINE))
    secret = forms.CharField(
        max_length=20_000, widget=forms.PasswordInput({"autocomplete": "new-password"}, render_value=False)
    )

    def credential(self) -> NewCredential:
        return NewCredential(CredentialKind.TOKEN, **self.cleaned_data)


class AppForm(forms.Form):
    """The private key of a GitHub app, for an https URL."""

    username = forms.CharField(max_length=200, widget=forms.TextInput(_MACHINE | {"inputmode": "numeric"}))
    secret = forms.CharField(max_length=20_000, widget=_WriteOnlyText())

    def credential(self) -> NewCredential:
        return NewCredential(CredentialKind.GITHUB_APP, **self.cleaned_data)


class KeyForm(forms.Form):
    """A private key for an ssh URL, and a token for pull requests."""

    secret = forms.CharField(max_length=20_000, widget=_WriteOnlyText())
    known_hosts = forms.CharField(max_length=20_000, widget=forms.Textarea(_MACHINE | {"rows": "3"}))
    api_token = forms.CharField(
        required=False,
        max_length=20_000,
        widget=forms.PasswordInput({"autocomplete": "new-password"}, render_value=False),
    )

    def credential(self) -> NewCredential:
        return NewCredential(CredentialKind.SSH_KEY, **self.cleaned_data)


CREDENTIAL_FORMS: dict[CredentialKind, type[TokenForm | AppForm | KeyForm]] = {
    CredentialKind.TOKEN: TokenForm,
    CredentialKind.GITHUB_APP: AppForm,
    CredentialKind.SSH_KEY: KeyForm,
}


def publishing_in_words(publish: PublishConfig | None) -> str:
    """Return what happens, to end a sentence: “the branch is pushed as one commit”; "" if nothing."""
    if publish is None:
        return ""
    parts = ["the branch is pushed"]
    if publish.update:
        parts = ["the branch is updated with the newest commits of the project’s branch and pushed"]
    if publish.squash:
        parts[0] += " as one commit"
    if publish.pull_request:
        kind = "draft pull request" if publish.draft else "pull request"
        parts.append(f"a {kind} is opened or updated")
    if publish.reviewers:
        verb = "is" if len(publish.reviewers) == 1 else "are"
        parts.append(f"{', '.join(publish.reviewers)} {verb} asked for a review")
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


@dataclass(frozen=True)
class PublishingDetails:
    """The target of a task's result, its last publication, and the reasons why it cannot be published now.

    `by_pipeline`: what its pipeline does with the result, "" if nothing; `is_due`: it has not done that yet.
    `is_published`: whether the last publication was one of the present result, and arrived. `forge`: the
    name of the forge at which pull requests can be opened, "" if they cannot. `can_merge`: whether the
    present result could not be updated, and its agent can be asked to merge. `can_approve`: the viewer's
    approval is all that is missing, or they have not given one yet, so that they can approve and publish.
    """

    task: Task
    target: str
    last: Publication | None
    hindrances: list[str]
    is_published: bool
    forge: str
    pull_request: PullRequest | None
    by_pipeline: str
    is_due: bool
    can_merge: bool
    can_approve: bool = False

    @property
    def can_publish(self) -> bool:
        return not self.hindrances and not (self.last and self.last.is_pending)

    @property
    def message(self) -> str:
        """The message of a squashed commit, to be edited: that of the same result before, or a new one.

        May run git.
        """
        if self.last and self.last.message and self.last.commit == self.task.head_commit:
            return self.last.message
        return commit_message(self.task)

    @property
    def longest_message(self) -> int:
        return LONGEST_MESSAGE


def publishing_details(task: Task, viewer: Principal | None = None) -> PublishingDetails | None:
    """Return what the page says of publishing, or None if nothing was published and the task is not done.

    Without a viewer nobody is asked to approve: what is shown is not the result of one task alone.
    """
    last = task.publications.select_related("by", "opened").first()
    if last is None and (task.phase != Phase.DONE or not task.head_commit):
        return None
    address, forge = forge_address_of(task.project), ""
    if address and not pull_request_hindrance(task.project):
        forge = address.kind.label
    hindrances = publication_hindrances(task, task.head_commit)
    return PublishingDetails(
        task,
        target_of(task.project),
        last,
        hindrances,
        is_published=last is not None
        and (last.commit, last.state) == (task.head_commit, PublicationState.PUSHED),
        forge=forge,
        pull_request=newest_pull_request(task),
        by_pipeline=publishing_in_words(publish_from_json(task.publish) if task.publish else None),
        is_due=task.publish_due and task.phase == Phase.DONE,
        can_merge=last is not None
        and bool(last.conflicts)
        and last.commit == task.head_commit
        and why_not_merge(task) is None,
        can_approve=viewer is not None and can_approve(task, viewer, hindrances),
    )


def can_approve(task: Task, viewer: Principal, hindrances: list[str] | None = None) -> bool:
    """Return whether the viewer can approve the result and publish it with that."""
    if task.phase != Phase.DONE or not may_act(viewer, task.project):
        return False
    if any(one.author_id == viewer.user.pk for one in approvals_of(task)):
        return False
    missing = missing_approvals(task, task.head_commit)
    if missing and (task.created_by_id == viewer.user.pk or not lacks_one_approval(task)):
        return False
    if hindrances is None:
        hindrances = publication_hindrances(task, task.head_commit)
    return [one for one in hindrances if one != missing] == []


@require_POST
def task_publish(request: HttpRequest, task_id: int) -> HttpResponse:
    """Publish the result of a task, with the options of the form; with `approve` approve it before."""

    def act(task: Task, *, by: Principal) -> None:
        if request.POST.get("approve") == "yes":
            commit = request.POST.get("commit", "")
            send_review(task, ReviewVerdict.APPROVE, by=by, via=Channel.WEB, commit=commit)
        publish_and_say_so(request, task, by=by, **asked_options(request))

    run_action(request, task_or_404(request, task_id), act)
    return redirect("task", task_id)


def publish_and_say_so(request: HttpRequest, task: Task, *, by: Principal, **options: Any) -> None:
    """Publish the result, and say to where on the next page."""
    publish(task, by=by, **options)
    messages.success(request, f"{task.branch} is being published to {target_of(task.project)}.")


@require_POST
def task_merge(request: HttpRequest, task_id: int) -> HttpResponse:
    """Let the agent merge the project's branch, with which the result conflicts."""
    run_action(request, task_or_404(request, task_id), partial(let_agent_merge, via=Channel.WEB))
    return redirect("task", task_id)


def asked_options(request: HttpRequest) -> dict[str, Any]:
    """Return the options of the form for publishing: `squash`, `update`, `pull_request`, `draft` if `yes`.

    `reviewers` are names, separated by commas or blanks; they and `draft` count with a pull request only, and
    `message` with `squash` only.
    """
    names = ("squash", "update", "pull_request", "draft")
    options: dict[str, Any] = {name: request.POST.get(name) == "yes" for name in names}
    options["reviewers"] = request.POST.get("reviewers", "").replace(",", " ").split()
    if not options["pull_request"]:
        options |= {"draft": False, "reviewers": []}
    if options["squash"]:
        options["message"] = request.POST.get("message", "")
    return options


def usual_options(task: Task) -> dict[str, Any]:
    """Return the options that the form for publishing has chosen at first."""
    details = publishing_details(task)
    if details is None:
        return {}
    last, request = details.last, details.pull_request
    options: dict[str, Any] = {"squash": bool(last and last.squash)}
    is_open = request is not None and request.is_open
    if details.forge and (is_open or last is None or last.pull_request):
        options["pull_request"] = True
        options["draft"] = bool(last and last.draft) and not is_open
        options["reviewers"] = list(last.reviewers) if last else []
    return options


#: Ids of the fields of a second form on the page.
_APP_IDS = "app_%s"


@sensitive_post_parameters("secret", "api_token")
@require_http_methods(["GET", "POST"])
def project_publishing(request: HttpRequest, project_id: int) -> HttpResponse:
    """A POST with a secret stores the credential, any other changes the settings."""
    project = project_or_404(request, project_id)
    if request.method == "GET":
        return _render_page(request, project)
    require_maintainer(principal_of(request), project, MANAGE_PUBLISHING)
    if "secret" in request.POST:
        return _post_credential(request, project)
    return _post_settings(request, project)


@require_POST
def project_credential_remove(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    remove_credential(project, by=principal_of(request))
    messages.success(request, "Credential removed.")
    return redirect("project_publishing", project.pk)


@require_POST
def project_webhook_create(request: HttpRequest, project_id: int) -> HttpResponse:
    """Make the secret and show it on this page: a redirect would have to store it."""
    project = project_or_404(request, project_id)
    secret = create_webhook_secret(project, by=principal_of(request))
    return _render_page(request, project, webhook_secret=secret)


@require_POST
def project_webhook_remove(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    remove_webhook_secret(project, by=principal_of(request))
    messages.success(request, "Webhook removed.")
    return redirect("project_publishing", project.pk)


def _post_settings(request: HttpRequest, project: Project) -> HttpResponse:
    # Users who may not change the repository do not send its field.
    form = PublishingForm({**PublishingForm.initial_values(project), **request.POST.dict()})
    if form.is_valid() and _try(
        form, partial(change_publishing, project, **form.cleaned_data, by=principal_of(request))
    ):
        messages.success(request, "Saved.")
        return redirect("project_publishing", project.pk)
    return _render_page(request, Project.objects.get(pk=project.pk), status=400, form=form)


def _post_credential(request: HttpRequest, project: Project) -> HttpResponse:
    is_app = request.POST.get("kind") == CredentialKind.GITHUB_APP
    form = _credential_form(project, request.POST, is_app=is_app)
    if form is None:
        return redirect("project_publishing", project.pk)  # the repository was changed meanwhile
    if form.is_valid() and _try(
        form, partial(store_credential, project, form.credential(), by=principal_of(request))
    ):
        messages.success(request, "Credential stored.")
        return redirect("project_publishing", project.pk)
    given = {"app_form" if is_app else "credential_form": form}
    return _render_page(request, project, status=400, **given)


def _credential_form(
    project: Project, given: Any = None, *, is_app: bool = False
) -> TokenForm | AppForm | KeyForm | None:
    """Return the form for the kind of credential that the repository takes; None for a folder."""
    kind = credential_kind_for(target_of(project))
    if kind is None:
        return None
    if is_app:
        return AppForm(given, auto_id=_APP_IDS)
    return CREDENTIAL_FORMS[kind](given)


def _try(form: forms.Form, action: Callable[[], object]) -> bool:
    """Run the action; return False and add an error to the form, at its field, if the input is refused."""
    try:
        action()
    except BadInput as error:
        if error.where in form.fields:
            form.add_error(error.where, error.message)
        else:
            form.add_error(None, str(error))
        return False
    return True


def _render_page(request: HttpRequest, project: Project, *, status: int = 200, **given: Any) -> HttpResponse:
    """Render the page; `given` are submitted forms with errors."""
    address = forge_address_of(project)
    is_https = credential_kind_for(target_of(project)) is CredentialKind.TOKEN
    takes_app = address is not None and address.kind == ForgeKind.GITHUB
    context = {
        "project": project,
        "address": address,
        "app_form": AppForm(auto_id=_APP_IDS) if takes_app and is_https else None,
        "target": target_of(project),
        "stored": stored_credential(project),
        "fault": credential_fault(project),
        "may_change": may_maintain(principal_of(request), project),
        "may_move": principal_of(request).is_site_admin,
        "webhook_url": request.build_absolute_uri(webhook_url(project)),
        "form": PublishingForm(initial=PublishingForm.initial_values(project)),
        "credential_form": _credential_form(project),
        **given,
    }
    return render(request, "publishing/project_settings.html", context, status=status)


#: Bytes of a call.
LONGEST_CALL = 2 * 2**20
_PLAIN_TEXT = "text/plain; charset=utf-8"


@csrf_exempt  # the signature stands in for the token
@login_not_required
@require_POST
def forge_webhook(request: HttpRequest, project_id: int) -> HttpResponse:
    """Check the signature and let the pull request be looked at. Nothing else of the call is used."""
    body = request.read(LONGEST_CALL + 1)
    if len(body) > LONGEST_CALL:
        return _counted(request, "refused", HttpResponse("The call is too long.\n", _PLAIN_TEXT, status=413))
    project = called_project(project_id, body, request.headers)
    if project is None:
        answer = HttpResponse(
            "There is no such webhook, or its secret is a different one.\n", _PLAIN_TEXT, status=404
        )
        return _counted(request, "refused", answer)
    answer = _counted(
        request, "signed", HttpResponse("Accepted.\n", _PLAIN_TEXT, status=202), key=str(project.pk)
    )
    if answer.status_code == 202:
        receive_call(project, body)
    return answer


def _counted(request: HttpRequest, action: str, answer: HttpResponse, *, key: str = "") -> HttpResponse:
    """Return the answer, or another one if there were too many such calls."""
    if ratelimit.consume(request, action=f"webhook_{action}", key=key):
        return answer
    return HttpResponse("Too many calls.\n", _PLAIN_TEXT, status=429, headers={"Retry-After": "60"})
