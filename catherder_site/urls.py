"""Addresses: the portal's own and the audit room."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("tasks_app.views.urls")),
]
