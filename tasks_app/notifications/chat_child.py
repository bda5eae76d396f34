"""Send to one chat service in a separate process: reads a request as JSON, prints the outcome.

apprise has much code for many services, and some options read files. Here it gets only one URL of a listed
service; this process cannot connect into private networks, and its parent ends it when it takes too long. It
has no access to the portal's settings, and apprise's logs (URLs with secrets) are discarded.
"""

from __future__ import annotations

import json
import sys
from ipaddress import ip_address, ip_network
from typing import Any

from tasks_app.core.allowed_networks import is_allowed

#: Supported services: apprise's class and the URL's scheme.
SERVICES = {
    "NotifySlack": "slack",
    "NotifyDiscord": "discord",
    "NotifyWorkflows": "workflows",
    "NotifyTelegram": "tgram",
    "NotifyMattermost": "mmosts",
    "NotifyRocketChat": "rockets",
    "NotifyMatrix": "matrixs",
    "NotifyNtfy": "ntfys",
    "NotifyZulip": "zulip",
    "NotifyGoogleChat": "gchat",
    "NotifyWebexTeams": "wxteams",
    "NotifyGotify": "gotifys",
}
#: Allowed URL options. Others could read files (template=), attach files or disable checks (verify=no).
OPTIONS = {
    *("key", "token", "threadkey", "thread", "topic", "channel", "to", "mode", "version", "priority"),
    *("tags", "silent", "auth", "api-version", "sp", "sv", "sig", "ver"),
}


def option_error(url: str) -> str:
    """Return what is wrong with the options of a URL, or "".

    Uses apprise's own parser, which also splits at `;` and knows no fragments.
    """
    from apprise.utils.parse import parse_url

    parsed = parse_url(url, verify_host=False) or {}  # type: ignore[no-untyped-call]
    for name in parsed.get("qsd", {}):
        if name not in OPTIONS:
            return f"The option “{name[:40]}” is not allowed here."
    return ""


def main() -> None:
    request = json.load(sys.stdin)
    import apprise  # noqa: F401 - imported before files are blocked

    _block_access([ip_network(network) for network in request["listed"]])
    json.dump(handle_request(request), sys.stdout)


_refused: list[str] = []


def _block_access(listed: list[Any]) -> None:
    """Block connections into networks that are not listed, files outside Python, and new processes.

    Audit hooks cannot be removed, so this holds whatever a URL makes apprise do.
    """
    allowed_folders = tuple(f"{folder}/" for folder in (sys.prefix, sys.base_prefix, "/etc/ssl"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
            address = str(arguments[1][0])
            if not is_allowed(ip_address(address.partition("%")[0]), listed):
                _refused.append(address)
                raise PermissionError(f"{address} is inside a network")
        elif event == "open" and not str(arguments[0]).startswith(allowed_folders):
            raise PermissionError("this process may not read files")
        elif event in ("subprocess.Popen", "os.exec", "os.system"):
            raise PermissionError("this process may not start programs")

    sys.addaudithook(hook)


def handle_request(request: dict[str, Any]) -> dict[str, Any]:
    """Check the URL only if `check` is set, otherwise send `title` and `body`."""
    import apprise

    if fault := option_error(request["url"]):
        return {"fault": fault}
    asset = apprise.AppriseAsset(
        app_id="Cat Herder", secure_logging=True, http_redirects=False, image_url_mask=None
    )
    service: Any = apprise.Apprise.instantiate(request["url"], asset=asset, suppress_exceptions=True)
    if type(service).__name__ not in SERVICES:
        return {"fault": "This is not the URL of a supported chat service."}
    if request.get("check"):
        scheme = request["url"].partition(":")[0].lower()
        if scheme == service.protocol:  # the others are https for every URL
            return {"fault": f"{scheme}:// is not encrypted. Use {service.secure_protocol}://."}
        return {"ok": True}
    service.verify_certificate, service.redirects = True, False
    return _send_one(service, request)


def _send_one(service: Any, request: dict[str, Any]) -> dict[str, Any]:
    import apprise
    import requests

    statuses: list[int] = []
    original_send = requests.Session.send

    def record_status(*args: Any, **kwargs: Any) -> Any:
        response = original_send(*args, **kwargs)
        statuses.append(response.status_code)
        return response

    requests.Session.send = record_status  # type: ignore[method-assign]
    sent = service.notify(
        title=request["title"],
        body=request["body"],
        body_format=apprise.NotifyFormat.TEXT,
        notify_type="info",
    )
    return {
        "ok": bool(sent),
        "status": statuses[-1] if statuses else None,
        "refused": _refused[0] if _refused else "",
    }


if __name__ == "__main__":
    main()
