"""URLs of the API, of its OpenAPI document and of its reference."""

from __future__ import annotations

from django.urls import path

from tasks_app.api import documentation
from tasks_app.api.app import patterns

urlpatterns = [
    path("openapi.json", documentation.openapi, name="api_openapi"),
    path("docs", documentation.docs, name="api_docs"),
    *patterns(),
]
