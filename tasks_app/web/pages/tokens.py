"""Personal settings: API tokens."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app import permissions
from tasks_app.core.errors import BadInput
from tasks_app.services.accounts.tokens import Made, make_token, revoke_token
from tasks_app.web.forms.tokens import NewTokenForm
from tasks_app.web.pages.access import principal_of, require_recent_login


@require_http_methods(["GET", "POST"])
def me_tokens(request: HttpRequest) -> HttpResponse:
    """List and create tokens. The secret is only in this response, not stored for a reload.

    A token outlives a login that was left open and a change of password, so it takes the password.
    """
    principal = principal_of(request)
    if request.method == "GET":
        return _render_page(request, NewTokenForm(principal=principal))
    require_recent_login(request)
    form = NewTokenForm(request.POST, principal=principal)
    made = _make(request, form) if form.is_valid() else None
    if made is None:
        return _render_page(request, form, status=400)
    return _render_page(request, NewTokenForm(principal=principal), made=made)


@require_POST
def me_token_revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    token = permissions.token_or_404(principal_of(request), token_id)
    revoke_token(token, by=principal_of(request))
    messages.success(request, f"Token “{token.name}” revoked.")
    return redirect("me_tokens")


def _make(request: HttpRequest, form: NewTokenForm) -> Made | None:
    try:
        return make_token(
            form.cleaned_data["name"],
            form.chosen_scopes,
            by=principal_of(request),
            projects=form.chosen_projects,
            expires_at=form.expires_at,
        )
    except BadInput as error:
        form.add_error(error.where if error.where in form.fields else None, error.message)
        return None


def _render_page(request: HttpRequest, form: NewTokenForm, *, status: int = 200, **more: Any) -> HttpResponse:
    tokens = (
        permissions.tokens_visible_to(principal_of(request))
        .filter(revoked_at=None)
        .prefetch_related("projects")
    )
    context = {"form": form, "tokens": tokens, "portal": request.build_absolute_uri("/").rstrip("/"), **more}
    return render(request, "me/tokens.html", context, status=status)
