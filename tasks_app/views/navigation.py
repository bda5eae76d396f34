"""What changes in the navigation: the number of open questions."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def navigation(request: HttpRequest) -> HttpResponse:
    return render(request, "_count.html")
