"""Configuration of Django's admin: a site that groups the models by area."""

from django.contrib.admin.apps import AdminConfig


class GroupedAdminConfig(AdminConfig):
    default_site = "tasks_app.web.admin_site.GroupedAdminSite"
