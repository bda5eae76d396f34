"""URLs: login, pages and the admin site; and the response where none of them could give one."""

import sys

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import include, path
from django.views.generic import RedirectView

from tasks_app.api.problems import Kind, problem
from tasks_app.models.database_errors import explain, is_unavailable

# The admin pages use the same login: it cannot bypass throttling and the second factor.
setattr(admin.site, "login", secure_admin_login(admin.site.login))  # noqa: B010 - mypy knows it as a method
_to_own_page = RedirectView.as_view(pattern_name="account_change_password")

urlpatterns = [
    path("admin/password_change/", _to_own_page, name="admin_password_change"),
    path("admin/", admin.site.urls),
    path("", include("tasks_app.web.accounts.urls")),
    path("api/v1/", include("tasks_app.api.urls")),
    path("", include("tasks_app.web.urls")),
]

#: Seconds after which a browser or script may well try again.
RETRY_AFTER = "10"


def handler500(request: HttpRequest) -> HttpResponse:
    """Respond to an uncaught exception without a query: the database may be what is unavailable."""
    error = sys.exc_info()[1]
    if error is None or not is_unavailable(error):
        return HttpResponse(render_to_string("500.html"), status=500)
    # Whoever asks may be a stranger: a session or a token cannot be looked up now.
    reason, headers = explain(error, full_path=False), {"Retry-After": RETRY_AFTER}
    if request.path.startswith("/api/"):
        return problem(Kind.DATABASE_UNAVAILABLE, reason, headers=headers)
    return HttpResponse(render_to_string("503.html", {"reason": reason}), status=503, headers=headers)
