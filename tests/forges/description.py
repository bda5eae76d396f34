"""An OpenAPI description: hold requests and answers against it, and make examples of its objects."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jsonschema import Draft202012Validator

_FORMATS = {"uri": "https://forge.example.org/x", "date-time": "2026-05-03T09:00:00Z"}
_TYPES = {"string": "text", "integer": 1, "number": 1, "boolean": False}


@dataclass(frozen=True)
class Operation:
    """One operation, and the values of its path's parameters."""

    path: str
    verb: str
    values: dict[str, str]
    spec: dict[str, Any]


class Description:
    """`problems` has what did not fit, in words."""

    def __init__(self, name: str) -> None:
        self._document = json.loads((Path(__file__).parent / f"{name}.json").read_text())
        self._checked = _as_json_schema(self._document["components"])
        self.problems: list[str] = []

    def operation(self, verb: str, path: str) -> Operation | None:
        found = []
        for template, item in self._document["paths"].items():
            pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(template))
            if (match := re.fullmatch(pattern, path)) and verb.lower() in item:
                spec = item[verb.lower()]
                shared = [*item.get("parameters", []), *spec.get("parameters", [])]
                found.append(Operation(template, verb, match.groupdict(), {**spec, "parameters": shared}))
        return min(found, key=lambda one: len(one.values), default=None)

    def check_request(self, operation: Operation, query: str, body: Any) -> None:
        what = f"{operation.verb} {operation.path}"
        given = [self._resolved(one) for one in operation.spec.get("parameters", [])]
        for one in given:
            if one["in"] == "path" and one["schema"].get("type") == "integer":
                value = _typed(operation.values[one["name"]])
                self._check(one["schema"], value, f"{what}, parameter {one['name']}")
        declared = {one["name"]: one for one in given if one["in"] == "query"}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in declared:
                self.problems.append(f"{what}: there is no parameter {name}")
            else:
                self._check(declared[name]["schema"], _typed(value), f"{what}, parameter {name}")
        content = self._resolved(operation.spec.get("requestBody", {})).get("content", {})
        if content and body is not None:
            self._check(content["application/json"]["schema"], body, f"{what}, body")
        elif bool(content) and operation.verb != "GET" and body is None:
            self.problems.append(f"{what}: without a body")

    def check_answer(self, operation: Operation, status: int, body: Any) -> None:
        response = self._resolved(operation.spec["responses"].get(str(status), {}))
        if not response:
            self.problems.append(f"{operation.verb} {operation.path} does not answer {status}")
        for content in response.get("content", {}).values():
            self._check(content["schema"], body, f"answer to {operation.verb} {operation.path}")
            break

    def example(self, name: str, /, **values: Any) -> dict[str, Any]:
        """Return the smallest object of this schema, with these values."""
        made: dict[str, Any] = _example(self._document, {"$ref": f"#/components/schemas/{name}"})
        return {**made, **values}

    def _check(self, schema: dict[str, Any], value: Any, where: str) -> None:
        whole = {**_as_json_schema(schema), "components": self._checked}
        for error in Draft202012Validator(whole).iter_errors(value):
            self.problems.append(f"{where}: {error.json_path} {error.message[:200]}")

    def _resolved(self, part: dict[str, Any]) -> dict[str, Any]:
        return _resolve(self._document, part)


@cache
def description(name: str) -> Description:
    return Description(name)


def _resolve(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        found: Any = document
        for word in part["$ref"].removeprefix("#/").split("/"):
            found = found[word]
        part = found
    return part


def _typed(value: str) -> Any:
    return int(value) if value.isdigit() else {"true": True, "false": False}.get(value, value)


def _as_json_schema(part: Any) -> Any:
    """Return a schema of OpenAPI 3.0 in JSON Schema, which has no `nullable`."""
    if isinstance(part, list):
        return [_as_json_schema(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {name: _as_json_schema(one) for name, one in part.items() if name != "nullable"}
    return {"anyOf": [made, {"type": "null"}]} if part.get("nullable") is True else made


def _example(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    schema = _resolve(document, schema)
    if schema.get("nullable"):
        return None
    for name in ("oneOf", "anyOf"):
        if name in schema:
            return _example(document, schema[name][0])
    if "allOf" in schema:
        merged: dict[str, Any] = {}
        for one in schema["allOf"]:
            merged |= _example(document, one)
        return merged
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _example(document, properties[name]) for name in schema.get("required", [])}
    if kind == "array":
        return []
    return _FORMATS.get(schema.get("format", ""), _TYPES[kind])
