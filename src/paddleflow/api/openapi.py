"""``/openapi.json``, generated from the table of routes: what dispatch, decoding and refusals really do.

Made when first asked for. `declared_errors` is also what the API tests hold every refusal against.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from paddleflow import __version__
from paddleflow.api.codes import declared
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.api.schemas import Schema, answer_schema, document_schemas
from paddleflow.spec import wire
from paddleflow.spec.document import Document

_PARAM = re.compile(r"\{(\w+)\}")
_REASONS = {
    400: "Refused: the request is wrong",
    401: "No token, or one that does not count",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Exists already, or is in a state that does not allow this",
    408: "The body did not arrive in time",
    413: "The body is too large",
    429: "Too many attempts; the hint says when to try again",
    500: "A fault of the server",
    503: "The server cannot answer now",
}
_DESCRIPTION = """\
Keys of request bodies and queries match without regard to case; `null` stands for "not given". Unknown query parameters \
are ignored. Every answer carries the header `x-pf-request-id`, which is that of the request when it has one."""


def declared_errors(route: Route) -> dict[int, set[str]]:
    """Status → codes of every refusal that this route may give."""
    errors: list[tuple[int, str]] = [(500, "InternalError"), (503, "InternalError")]
    if not route.open:
        errors += [(401, "AuthWithoutToken"), (401, "AuthInvalidToken")]
        errors += [(403, "AuthIllegalUser"), (403, "TokenScopeTooSmall")]
    if route.root:
        errors += [(403, "OnlyRootAllowed")]
    errors += [(400, "InvalidURI")]
    if route.query is not None and "marker" in route.query.model_fields:
        errors += [(400, "InvalidMarker")]
    if route.body is not None:
        errors += [(400, "MalformedJSON"), (400, "InappropriateJSON"), (413, "InvalidHTTPRequest")]
        errors += [(408, "InvalidHTTPRequest"), (429, "TooManyRequests")]
        errors += [(400, route.body.code)]
    errors += map(declared, route.errors)
    table: dict[int, set[str]] = {}
    for status, code in errors:
        table.setdefault(status, set()).add(code)
    return table


def describe(routes: Sequence[Route], *, ignore_unknown: bool = False) -> dict[str, Any]:
    """The whole description; ValueError when two routes have handlers of one name."""
    components: dict[str, Schema] = {}
    kinds = list(dict.fromkeys(kind for route in routes for kind in (route.body, route.query) if kind is not None))
    documents: dict[str, Schema] = {}
    if kinds:
        document_schemas(kinds, documents, closed=not ignore_unknown)
    queries = {kind.__name__ for route in routes if (kind := route.query) is not None}
    components.update({name: schema for name, schema in documents.items() if name not in queries})
    answer_schema(wire.ErrorBody, components)
    paths: dict[str, dict[str, Any]] = {}
    seen: dict[str, Route] = {}
    for route in routes:
        operation = _operation(route, documents, components)
        other = seen.setdefault(operation["operationId"], route)
        if other is not route:
            raise ValueError(f"{route.path} and {other.path} both have a handler called {route.handler.__name__}")
        paths.setdefault(route.prefix + route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "PaddleFlow", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "x-pf-authorization"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(route: Route, documents: dict[str, Schema], components: dict[str, Schema]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.handler.__module__.rpartition(".")[2]],
        "responses": _responses(route, components),
        "security": [] if route.open else [{"token": []}, {"bearer": []}],
    }
    if doc := inspect.getdoc(route.handler):
        operation["description"] = doc
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAM.findall(route.path)
    ]
    parameters += _query_parameters(route.query, documents)
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
            if route.binary
            else {"application/json": {"schema": {"$ref": f"#/components/schemas/{route.body.__name__}"}}},
        }
    return operation


def _query_parameters(kind: type[Document] | None, documents: dict[str, Schema]) -> list[dict[str, Any]]:
    if kind is None:
        return []
    schema = documents[kind.__name__]
    required = schema.get("required", [])
    parameters = []
    for name, field in schema["properties"].items():
        parameter = {"name": name, "in": "query", "required": name in required, "schema": field}
        if "description" in field:
            parameter["description"] = field["description"]
        parameters.append(parameter)
    return parameters


def _responses(route: Route, components: dict[str, Schema]) -> dict[str, Any]:
    headers = {"x-pf-request-id": {"schema": {"type": "string"}, "required": True}}
    good: dict[str, Any] = {"description": "Done", "headers": headers}
    if route.answer is not None:
        good["content"] = {route.media_type: {"schema": answer_schema(route.answer, components)}}
    responses = {str(route.status): good}
    for status, found in sorted(declared_errors(route).items()):
        responses[str(status)] = {
            "description": f"{_REASONS.get(status, 'Refused')}: {', '.join(sorted(found))}",
            "headers": headers,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
        }
    return responses


def route(routes: Sequence[Route], *, ignore_unknown: bool) -> Route:
    """The route that answers the description of `routes` and of itself."""
    made: list[bytes] = []

    async def openapi(platform: Platform, call: Call[NoBody, NoQuery]) -> bytes:
        if not made:
            made.append(to_json(describe([*routes, own], ignore_unknown=ignore_unknown)))
        return made[0]

    own = Route("GET", "/openapi.json", openapi, "This description", answer=dict[str, object], open=True, prefix="")
    return own
