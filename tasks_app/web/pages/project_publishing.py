"""Where and how a project's results are published, and the credential for it, which is never shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.core.errors import BadInput
from tasks_app.forges.port import ForgeKind
from tasks_app.models import CredentialKind, Project
from tasks_app.permissions import may_maintain, require_maintainer
from tasks_app.services.publishing.forge_webhooks import (
    create_webhook_secret,
    remove_webhook_secret,
    webhook_url,
)
from tasks_app.services.publishing.settings import (
    MANAGE_PUBLISHING,
    change_publishing,
    credential_fault,
    credential_kind_for,
    forge_address_of,
    remove_credential,
    store_credential,
    stored_credential,
    target_of,
)
from tasks_app.web.forms.publishing import CREDENTIAL_FORMS, AppForm, KeyForm, PublishingForm, TokenForm
from tasks_app.web.pages.access import principal_of, project_or_404
from tasks_app.web.pages.actions import run_if_allowed

#: Ids of the fields of a second form on the page.
_APP_IDS = "app_%s"


@sensitive_post_parameters("secret", "api_token")
@require_http_methods(["GET", "POST"])
def project_publishing(request: HttpRequest, project_id: int) -> HttpResponse:
    """A POST with a secret stores the credential, any other changes the settings."""
    project = project_or_404(request, project_id)
    if request.method == "GET":
        return _render_page(request, project)
    run_if_allowed(lambda: require_maintainer(principal_of(request), project, MANAGE_PUBLISHING))
    return (
        _post_credential(request, project) if "secret" in request.POST else _post_settings(request, project)
    )


@require_POST
def project_credential_remove(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    run_if_allowed(lambda: remove_credential(project, by=principal_of(request)))
    messages.success(request, "Credential removed.")
    return redirect("project_publishing", project.pk)


@require_POST
def project_webhook_create(request: HttpRequest, project_id: int) -> HttpResponse:
    """Make the secret and show it on this page: a redirect would have to store it."""
    project = project_or_404(request, project_id)
    made: list[str] = []
    run_if_allowed(lambda: made.append(create_webhook_secret(project, by=principal_of(request))))
    return _render_page(request, project, webhook_secret=made[0])


@require_POST
def project_webhook_remove(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    run_if_allowed(lambda: remove_webhook_secret(project, by=principal_of(request)))
    messages.success(request, "Webhook removed.")
    return redirect("project_publishing", project.pk)


def _post_settings(request: HttpRequest, project: Project) -> HttpResponse:
    # Whoever may not change the repository does not send the field.
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
    if is_app and kind:
        return AppForm(given, auto_id=_APP_IDS)
    return CREDENTIAL_FORMS[kind](given) if kind else None


def _try(form: forms.Form, action: Callable[[], object]) -> bool:
    """Run the action; return False and add an error to the form, at its field, if the input is refused."""
    try:
        run_if_allowed(action)
    except BadInput as error:
        field = error.where if error.where in form.fields else None
        form.add_error(field, error.message if field else str(error))
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
    return render(request, "projects/publishing.html", context, status=status)
