"""People and their roles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db.models import Q

from tasks_app.admin.base import KeepsHistory, ModelAdmin
from tasks_app.models import Membership, User


@admin.register(User)
class PersonAdmin(KeepsHistory, UserAdmin):  # type: ignore[type-arg]
    list_display = ["username", "email", "first_name", "last_name", "is_active", "is_superuser", "last_login"]
    list_filter = ["is_active", "is_superuser", "is_staff", "memberships__project"]
    date_hierarchy = "date_joined"

    def reasons_to_keep(self, pks: Iterable[Any]) -> list[str]:
        traces = ("answers", "tasks", "transition", "logentry")
        acted = Q(*((f"{trace}__isnull", False) for trace in traces), _connector=Q.OR)
        return [
            f"The history names {person} for what {person} did. "
            "Take “active” away instead: that ends every login."
            for person in User.objects.filter(acted, pk__in=list(pks)).distinct()
        ]


@admin.register(Membership)
class MembershipAdmin(ModelAdmin):
    list_display = ["user", "project", "role"]
    list_filter = ["role", "project"]
    list_select_related = ["user", "project"]
    search_fields = ["user__username", "user__first_name", "user__last_name", "project__name"]
    autocomplete_fields = ["user", "project"]
