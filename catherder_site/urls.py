"""URLs: login, pages and the admin site."""

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

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

#: Also where the database itself is why nothing could be shown.
handler500 = "catherder_site.error_responses.something_broke"
