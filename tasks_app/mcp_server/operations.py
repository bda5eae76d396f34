"""Calling operations of the API inside of the portal: the same input, results, permissions and errors."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from django.core.handlers.wsgi import WSGIRequest
from django.http import Http404, HttpRequest
from django.urls import Resolver404, resolve

from tasks_app.api.app import api, document
from tasks_app.history.audit import ActionOrigin, acting_from
from tasks_app.mcp_server.application import Caller
from tasks_app.models import Channel, Scope

_T = TypeVar("_T")


class Failed(Exception):
    """An operation refused; `problem` says why, as in a response of the API."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["detail"])
        self.problem = problem


class Operation:
    """An operation of the API, by its name in the OpenAPI document."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def _described(self) -> tuple[str, str, dict[str, Any]]:
        return _operations()[self.name]

    @property
    def scope(self) -> Scope:
        return Scope(self._described[2]["x-scope"])

    @property
    def only_reads(self) -> bool:
        return self._described[0] == "GET"

    def arguments(self) -> dict[str, Any]:
        """Return one schema for all that the operation takes: in its path, its query and its body."""
        _, _, described = self._described
        properties, required = {}, []
        for parameter in _parameters(described, "path", "query"):
            properties[parameter["name"]] = parameter["schema"]
            if parameter["required"]:
                required.append(parameter["name"])
        body = _body_schema(described)
        properties |= body.get("properties", {})
        required += body.get("required", [])
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def result(self) -> dict[str, Any]:
        """Return the schema of its result."""
        responses = self._described[2]["responses"]
        success = next(responses[status] for status in responses if status < 300)
        schema: dict[str, Any] = next(iter(success["content"].values()))["schema"]
        return schema

    def call(self, caller: Caller, arguments: Mapping[str, Any], *, via: Channel = Channel.MCP) -> Any:
        """Carry it out and return its result. Raises Failed."""
        method, path, described = self._described
        rest = dict(arguments)
        for parameter in _parameters(described, "path"):
            name = parameter["name"]
            if name not in rest:
                raise Failed(_missing(name))
            path = path.replace(f"{{{name}}}", quote(str(rest.pop(name)), safe="", errors="replace"))
        query, body = rest, None
        if "requestBody" in described:
            names = {parameter["name"] for parameter in _parameters(described, "query")}
            query = {name: value for name, value in rest.items() if name in names}
            body = {name: value for name, value in rest.items() if name not in names}
        request = _request(caller, method, path, query, body)
        try:
            found = resolve(path)
        except Resolver404:
            return run(caller, _not_found)
        with acting_from(origin_of(caller, via)):
            response = found.func(request, *found.args, **found.kwargs)
        content: Any = json.loads(response.content)
        if response.status_code >= 400:
            raise Failed(content)
        return content


def run(caller: Caller, act: Callable[[], _T], *, via: Channel = Channel.MCP) -> _T:
    """Return what `act` returns; what it refuses is explained as an operation would. Raises Failed."""
    try:
        with acting_from(origin_of(caller, via)):
            return act()
    except Exception as error:
        response = api.on_exception(_request(caller, "GET", "/mcp", {}, None), error)
        raise Failed(json.loads(response.content)) from error


def origin_of(caller: Caller, via: Channel) -> ActionOrigin:
    """Return the origin of what the caller does: a person in a form, or by itself their program."""
    token = caller.principal.token.name if caller.principal.token else ""
    return ActionOrigin(via=via, ip_address=caller.ip_address, token=token, program=caller.client)


def with_definitions(schema: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a schema of the OpenAPI document that stands alone, with what it refers to as `$defs`.

    `more` are further properties. A text becomes the property `text`.
    """
    components = document()["components"]["schemas"]
    if name := _referred(schema):
        schema = components[name]
    if schema["type"] != "object":
        schema = {"type": "object", "properties": {"text": schema}}
    schema = {**schema, "properties": {**schema.get("properties", {}), **(more or {})}}
    needed, waiting = {}, _references(schema)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = components[name]
            waiting |= _references(components[name])
    text = json.dumps({**schema, "$defs": dict(sorted(needed.items()))})
    whole: dict[str, Any] = json.loads(text.replace("#/components/schemas/", "#/$defs/"))
    return whole


def _referred(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _references(schema: Any) -> set[str]:
    if isinstance(schema, Mapping):
        own = {_referred(schema)} - {""}
        return own.union(*map(_references, schema.values()))
    if isinstance(schema, list):
        return set().union(*map(_references, schema))
    return set()


@cache
def _operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return method, path and description of each operation by its name."""
    return {
        described["operationId"]: (method.upper(), path, described)
        for path, operations in document()["paths"].items()
        for method, described in operations.items()
    }


def _parameters(described: Mapping[str, Any], *places: str) -> list[dict[str, Any]]:
    return [one for one in described.get("parameters", ()) if one["in"] in places]


def _body_schema(described: Mapping[str, Any]) -> dict[str, Any]:
    if "requestBody" not in described:
        return {}
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    found: dict[str, Any] = document()["components"]["schemas"][_referred(_first(schema))]
    return found


def _first(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a body refers to; one with a default is wrapped in `allOf`."""
    found: Mapping[str, Any] = schema.get("allOf", [schema])[0]
    return found


def _request(
    caller: Caller, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None
) -> HttpRequest:
    content = b"" if body is None else json.dumps(body).encode()
    flat = {name: _flat(value) for name, value in query.items() if value is not None}
    request = WSGIRequest(
        {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": urlencode(flat, doseq=True, errors="replace"),
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(content)),
            "REMOTE_ADDR": caller.ip_address,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.input": io.BytesIO(content),
        }
    )
    request.accepted = caller.principal  # type: ignore[attr-defined]
    return request


def _flat(value: Any) -> Any:
    """Return a value as the query of a URL has it."""
    if isinstance(value, list):
        return [_flat(one) for one in value]
    if isinstance(value, bool):
        return str(value).lower()
    return value


def _missing(name: str) -> dict[str, Any]:
    return {
        "status": 400,
        "title": "The input is not usable",
        "detail": f"{name}: Field required",
        "errors": [{"where": name, "message": "Field required"}],
    }


def _not_found() -> None:
    raise Http404
