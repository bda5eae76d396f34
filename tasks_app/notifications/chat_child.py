"""Sending to one chat service, in a process of its own: reads an order as JSON, prints what became of it.

apprise speaks to many services by itself, over many lines of code and some options that read files. Here it
gets no more than one address of a listed service; this process cannot connect into private networks,
whatever apprise does, and its parent ends it when it takes too long. It knows nothing of the portal's
settings, and what apprise logs (addresses with secrets) goes nowhere.
"""

from __future__ import annotations

import json
import sys
from ipaddress import ip_address, ip_network
from typing import Any

from tasks_app.notifications.allowed_networks import is_allowed

#: The services, by apprise's name of each, and how an address of it begins.
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
#: Options of an address. Others could read files (template=), attach things or switch checks off (verify=no).
OPTIONS = {
    *("key", "token", "threadkey", "thread", "topic", "channel", "to", "mode", "version", "priority"),
    *("tags", "silent", "auth", "api-version", "sp", "sv", "sig", "ver"),
}


def fault_of(address: str) -> str:
    """What is wrong with the options of an address; empty if nothing is.

    Options are what apprise takes for options: it ends them at `;` as well, and knows no fragments.
    """
    from apprise.utils.parse import parse_url

    read = parse_url(address, verify_host=False) or {}  # type: ignore[no-untyped-call]
    for name in read.get("qsd", {}):
        if name not in OPTIONS:
            return f"The option “{name[:40]}” is not allowed here."
    return ""


def main() -> None:
    order = json.load(sys.stdin)
    import apprise  # noqa: F401 - its files are its own, those of an address are not

    _stay_outside([ip_network(network) for network in order["listed"]])
    json.dump(carry_out(order), sys.stdout)


_refused: list[str] = []


def _stay_outside(listed: list[Any]) -> None:
    """From now on no connection of this process goes into a network that is not listed, and no file is read
    but those of Python and of the system's programs, whatever an address has apprise do.
    """
    homes = tuple(f"{home}/" for home in (sys.prefix, sys.base_prefix, "/etc/ssl"))

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
            number = str(arguments[1][0])
            if not is_allowed(ip_address(number.partition("%")[0]), listed):
                _refused.append(number)
                raise PermissionError(f"{number} is inside a network")
        elif event == "open" and not str(arguments[0]).startswith(homes):
            raise PermissionError("files are not read from here")
        elif event in ("subprocess.Popen", "os.exec", "os.system"):
            raise PermissionError("nothing is started from here")

    sys.addaudithook(look)


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """`check` only looks at the address; else `title` and `body` are sent."""
    import apprise

    if fault := fault_of(order["address"]):
        return {"fault": fault}
    asset = apprise.AppriseAsset(
        app_id="Cat Herder", secure_logging=True, http_redirects=False, image_url_mask=None
    )
    service: Any = apprise.Apprise.instantiate(order["address"], asset=asset, suppress_exceptions=True)
    if type(service).__name__ not in SERVICES:
        return {"fault": "That is no address of a chat service that can be used here."}
    if order.get("check"):
        return {"ok": True}
    service.verify_certificate, service.redirects = True, False
    return _send(service, order)


def _send(service: Any, order: dict[str, Any]) -> dict[str, Any]:
    import apprise
    import requests

    statuses: list[int] = []
    plain = requests.Session.send

    def noting(*args: Any, **kwargs: Any) -> Any:
        response = plain(*args, **kwargs)
        statuses.append(response.status_code)
        return response

    requests.Session.send = noting  # type: ignore[method-assign]
    sent = service.notify(
        title=order["title"], body=order["body"], body_format=apprise.NotifyFormat.TEXT, notify_type="info"
    )
    return {
        "ok": bool(sent),
        "status": statuses[-1] if statuses else None,
        "refused": _refused[0] if _refused else "",
    }


if __name__ == "__main__":
    main()
