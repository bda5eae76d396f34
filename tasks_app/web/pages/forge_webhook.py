"""The URL that a project's forge calls when something happens there. It has no session and no page."""

from __future__ import annotations

from allauth.core.internal import ratelimit
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from tasks_app.services.publishing.forge_webhooks import called_project, receive_call

#: Bytes of a call.
LONGEST_CALL = 2 * 2**20
#: Calls that are refused count by IP address, signed ones by project: nobody can use up the limit of a forge
#: that has the same IP address as they.
_RATES = {"refused": "600/m/ip", "signed": "600/m/key"}
_PLAIN = "text/plain; charset=utf-8"


@csrf_exempt  # the signature stands in for the token
@login_not_required
@require_POST
def forge_webhook(request: HttpRequest, project_id: int) -> HttpResponse:
    """Check the signature and let the pull request be looked at. Nothing else of the call is used."""
    body = request.read(LONGEST_CALL + 1)
    if len(body) > LONGEST_CALL:
        return _counted(request, "refused", HttpResponse("The call is too long.\n", _PLAIN, status=413))
    project = called_project(project_id, body, request.headers)
    if project is None:
        answer = HttpResponse("There is no such webhook, or the secret is another.\n", _PLAIN, status=404)
        return _counted(request, "refused", answer)
    answer = _counted(request, "signed", HttpResponse("Accepted.\n", _PLAIN, status=202), key=str(project.pk))
    if answer.status_code == 202:
        receive_call(project, body)
    return answer


def _counted(request: HttpRequest, action: str, answer: HttpResponse, *, key: str = "") -> HttpResponse:
    """Return the answer, or another one if there were too many such calls."""
    if ratelimit.consume(request, app="forge_webhook", action=action, config=_RATES, key=key):
        return answer
    return HttpResponse("Too many calls.\n", _PLAIN, status=429, headers={"Retry-After": "60"})
