"""The OpenAPI document put in words for the documentation page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks_app.api.app import document

Schema = Mapping[str, Any]
_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


@dataclass(frozen=True)
class Entry:
    """A parameter, or a field of a body. `thing` is the name of the schema that explains it further."""

    name: str
    kind: str
    description: str
    required: bool = False
    place: str = ""
    thing: str = ""


@dataclass(frozen=True)
class Reply:
    """What may come back."""

    status: int
    meaning: str
    thing: str = ""


@dataclass(frozen=True)
class Explained:
    """An operation."""

    name: str
    method: str
    path: str
    summary: str
    description: list[str]
    scope: str
    parameters: list[Entry]
    body: list[Entry]
    replies: list[Reply]
    problems: list[Reply]
    curl: str


@dataclass(frozen=True)
class Thing:
    """A schema with a name."""

    name: str
    description: str
    entries: list[Entry] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)


def groups(portal: str) -> dict[str, list[Explained]]:
    """The operations by their tag, in the order of the document; `portal` is the address for examples."""
    found: dict[str, list[Explained]] = {}
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            explained = _explained(method, path, operation, portal)
            found.setdefault(operation["tags"][0], []).append(explained)
    return found


def things() -> list[Thing]:
    """The schemas of what comes back and goes in, by name; those of parameters stand with the operations."""
    used = _used()
    schemas = document()["components"]["schemas"]
    return [_thing(name, schema) for name, schema in sorted(schemas.items()) if name in used]


def _explained(method: str, path: str, operation: Schema, portal: str) -> Explained:
    body = _body_schema(operation)
    replies = [_reply(int(status), reply) for status, reply in sorted(operation["responses"].items())]
    return Explained(
        name=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        description=operation.get("description", "").split("\n\n"),
        scope=operation["x-scope"],
        parameters=[_parameter(parameter) for parameter in operation["parameters"]],
        body=_entries(body),
        replies=[reply for reply in replies if reply.status < 400],
        problems=[reply for reply in replies if reply.status >= 400],
        curl=_curl(method, portal + path, body),
    )


def _parameter(parameter: Schema) -> Entry:
    kind, thing = _kind(parameter["schema"])
    words = parameter.get("description", "")
    return Entry(parameter["name"], kind, words, parameter["required"], parameter["in"], thing)


def _entries(schema: Schema) -> list[Entry]:
    required = schema.get("required", ())
    return [
        Entry(name, *_described(inner), required=name in required, thing=_kind(inner)[1])
        for name, inner in schema.get("properties", {}).items()
    ]


def _described(schema: Schema) -> tuple[str, str]:
    return _kind(schema)[0], schema.get("description", "")


def _reply(status: int, reply: Schema) -> Reply:
    content: Schema = next(iter(reply.get("content", {}).values()), {})
    return Reply(status, reply["description"], _kind(content.get("schema", {}))[1])


def _kind(schema: Schema) -> tuple[str, str]:
    """What a value is, in words, and the name of the schema that it refers to."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return name, name
    if "anyOf" in schema:
        parts = [_kind(part) for part in schema["anyOf"]]
        return " or ".join(kind for kind, _ in parts), next((thing for _, thing in parts if thing), "")
    if schema.get("type") == "array":
        kind, thing = _kind(schema["items"])
        return f"list of {kind}", thing
    if schema.get("type") == "object":
        return _kind_of_object(schema)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"])), ""
    return _bounded(schema), ""


def _kind_of_object(schema: Schema) -> tuple[str, str]:
    inner = schema.get("additionalProperties")
    if not isinstance(inner, dict):
        return "object", ""
    kind, thing = _kind(inner)
    return f"object of {kind}", thing


def _bounded(schema: Schema) -> str:
    kind = str(schema.get("type", "anything"))
    words = _KINDS.get(kind, kind)
    if schema.get("maximum", 2**53) < 2**53:
        return f"{words}, {schema.get('minimum', 0)} to {schema['maximum']}"
    if "maxLength" in schema and schema["maxLength"] > 1:
        return f"{words}, up to {schema['maxLength']:,} characters"
    return words


def _thing(name: str, schema: Schema) -> Thing:
    choices = [str(choice) for choice in schema.get("enum", ())]
    return Thing(name, schema.get("description", ""), _entries(schema), choices)


def _used() -> set[str]:
    """Names of schemas that are referred to, in operations or in one another."""
    return set(_references({"paths": document()["paths"], "schemas": document()["components"]["schemas"]}))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.rsplit("/", 1)[1]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _body_schema(operation: Schema) -> Schema:
    content = operation.get("requestBody", {}).get("content", {})
    schema: Schema = content.get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        named: Schema = document()["components"]["schemas"][name]
        return named
    return schema


def _curl(method: str, address: str, body: Schema) -> str:
    implied = method == "get" or (method == "post" and body)
    verb = "" if implied else f" -X {method.upper()}"
    lines = [f'curl{verb} -H "Authorization: Bearer $TOKEN"']
    if body:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(_example(body), ensure_ascii=False))}")
    return " \\\n".join([*lines, f"  {address}"])


def _example(schema: Schema) -> dict[str, Any]:
    """The fields with an example or that must be there; if there are none, the first."""
    fields = schema.get("properties", {})
    required = schema.get("required", ())
    shown = {name: one for name, one in fields.items() if "examples" in one or name in required}
    return {name: _sample(one) for name, one in (shown or dict([next(iter(fields.items()))])).items()}


def _sample(schema: Schema) -> Any:
    if "examples" in schema:
        return schema["examples"][0]
    if "anyOf" in schema:
        return _sample(schema["anyOf"][0])
    if "$ref" in schema:
        named = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        return _sample(named)
    if "enum" in schema:
        return schema["enum"][0]
    return {"integer": schema.get("minimum", 1), "boolean": True, "array": []}.get(schema["type"], "…")
