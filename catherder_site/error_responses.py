"""Responses to uncaught exceptions and to an unavailable database."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from tasks_app.api.problems import Kind, problem
from tasks_app.models.database_errors import explain, is_unavailable

#: Seconds after which a browser or script may well try again.
RETRY_AFTER = "10"


def something_broke(request: HttpRequest) -> HttpResponse:
    """Handle uncaught exceptions without a query to the database."""
    error = sys.exc_info()[1]
    if error is None or not is_unavailable(error):
        return HttpResponse(render_to_string("500.html"), status=500)
    # Whoever asks may be a stranger: a session or a token cannot be looked up now.
    reason, headers = explain(error, full_path=False), {"Retry-After": RETRY_AFTER}
    if request.path.startswith("/api/"):
        return problem(Kind.DATABASE_UNAVAILABLE, reason, headers=headers)
    return HttpResponse(render_to_string("503.html", {"reason": reason}), status=503, headers=headers)
