"""URLs of the API, and the pages of its OpenAPI document and its reference."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_GET
from ninja.errors import AuthenticationError

from tasks_app.api.app import api, document, patterns
from tasks_app.api.auth import authenticators
from tasks_app.api.problems import Kind, Refused
from tasks_app.models import Scope


@login_not_required
@require_GET
def openapi(request: HttpRequest) -> HttpResponse:
    """Return the document to users who are logged in or have a token with the scope `read`."""
    try:
        if not any(authenticate(request) for authenticate in authenticators(Scope.READ)):
            return api.on_exception(request, AuthenticationError())
    except Refused as error:
        return api.on_exception(request, error)
    return JsonResponse(document())


@require_GET
def docs(request: HttpRequest) -> HttpResponse:
    """Return the reference, a page of the portal for logged-in users."""
    portal = request.build_absolute_uri("/").rstrip("/")
    kinds = [(kind, kind.description) for kind in Kind]
    context = {
        "kinds": kinds,
        "portal": portal,
        "rate": settings.ENVIRONMENT.api_rate,
        "scopes": Scope.choices,
    }
    return render(request, "api/docs.html", context)


urlpatterns = [
    path("openapi.json", openapi, name="api_openapi"),
    path("docs", docs, name="api_docs"),
    *patterns(),
]
