"""Browsers to which notifications are pushed."""

from __future__ import annotations

from django.db import models

from tasks_app.models.user import User


class PushSubscription(models.Model):
    """One browser of one user. `encrypted`: its push service's URL and its keys as JSON.

    The digest of the URL identifies the browser, whoever is logged in.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="push_subscriptions")
    endpoint_digest = models.CharField(max_length=64, unique=True, editable=False)
    encrypted = models.TextField(editable=False)
    browser = models.CharField(max_length=60, blank=True)
    host = models.CharField(max_length=255, help_text="The host of its push service.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.browser or 'a browser'} of {self.user}"
