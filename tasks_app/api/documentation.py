"""The OpenAPI document, and the page that is made from it."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET
from ninja.errors import AuthenticationError

from tasks_app.api.app import api, document
from tasks_app.api.auth import doors
from tasks_app.api.problems import Kind, Refused
from tasks_app.models import Scope


@login_not_required
@require_GET
def openapi(request: HttpRequest) -> HttpResponse:
    """For who is logged in, or has a token that may read."""
    try:
        if not any(door(request) for door in doors(Scope.READ)):
            return api.on_exception(request, AuthenticationError())
    except Refused as error:
        return api.on_exception(request, error)
    return JsonResponse(document())


@require_GET
def docs(request: HttpRequest) -> HttpResponse:
    """A page of the portal, and so only for who is logged in."""
    portal = request.build_absolute_uri("/").rstrip("/")
    kinds = [(kind, kind.facts) for kind in Kind]
    context = {
        "kinds": kinds,
        "portal": portal,
        "rate": settings.ENVIRONMENT.api_rate,
        "scopes": Scope.choices,
    }
    return render(request, "api/docs.html", context)
