"""The OpenAPI document of the JSON API, made from the table of its routes and the descriptors of the protocol."""

from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from tidelog_server.rpc.web.api import ROUTES, Route
from tidelog_server.rpc.web.calls import SERVICE
from tidelog_server.rpc.web.json_form import ERROR_SCHEMA, fields_of, schema_name, schema_of, value_schema

Schema = dict[str, Any]
_JSON: Final = "application/json"
_SECURITY: Final[list[Schema]] = [{"bearer": []}, {"certificate": []}, {}]


def openapi_document(version: str) -> Schema:
    """Return the document; ``version`` is that of the server."""
    paths: dict[str, Schema] = {}
    schemas: dict[str, Schema] = {"Error": ERROR_SCHEMA}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidelog mailboxes",
            "version": version,
            "description": "Work queues on a log. Times are milliseconds since the epoch, durations are milliseconds.",
        },
        "paths": paths,
        "security": _SECURITY,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _operation(route: Route, schemas: dict[str, Schema]) -> Schema:
    method = SERVICE.methods_by_name[route.call]
    request, response = method.input_type, method.output_type
    operation: Schema = {"operationId": route.call, "summary": route.summary}
    parameters: list[Schema] = []
    if route.name_field:
        parameters.append({"name": "name", "in": "path", "required": True, "schema": {"type": "string"}})
    if route.has_content:
        _add(request, schemas, route.name_field)
        content = {_JSON: {"schema": _reference(request)}}
        operation["requestBody"] = {"content": content}
    else:
        fields = [field for name, field in fields_of(request).items() if name != route.name_field]
        parameters += [{"name": field.name, "in": "query", "schema": value_schema(field)} for field in fields]
    if parameters:
        operation["parameters"] = parameters
    _add(response, schemas)
    answer = {"description": "The answer.", "content": {_JSON: {"schema": _reference(response)}}}
    failure = {
        "type": "object", "required": ["error"], "properties": {"error": {"$ref": "#/components/schemas/Error"}},
    }  # fmt: skip
    operation["responses"] = {
        "200": answer,
        **({"201": answer} if route.created_field else {}),
        "default": {"description": "The call was refused, or failed.", "content": {_JSON: {"schema": failure}}},
    }
    return operation


def _add(descriptor: Descriptor, schemas: dict[str, Schema], without: str = "") -> None:
    """Add the schemas of a message, and of the messages in it."""
    name = schema_name(descriptor)
    if name in schemas:
        return
    schemas[name] = schema_of(descriptor, without)
    for field in fields_of(descriptor).values():
        inner = field.message_type
        if inner is not None and not inner.GetOptions().map_entry:
            _add(inner, schemas)


def _reference(descriptor: Descriptor) -> Schema:
    return {"$ref": f"#/components/schemas/{schema_name(descriptor)}"}
