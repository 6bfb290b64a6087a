"""The protocol's OpenAPI description, made from the classes that check the bodies."""

from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from master import protocol

Json = dict[str, Any]

_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.:-]*$", "maxLength": 253}
_CALLS = (
    ("post", "/v1/join", protocol.Join, "A trainer begins, or comes to a new master."),
    ("post", "/v1/terms", protocol.Term, "The group's leader begins a term, in a later round."),
    ("put", "/v1/datasets/{name}", protocol.Description, "Describes a data set; the first wins."),
    ("post", "/v1/work", protocol.Work, "Acknowledges and leases."),
    ("post", "/v1/heartbeat", protocol.Heartbeat, "A trainer lives."),
    ("post", "/v1/leave", protocol.Leave, "A trainer ends."),
    ("post", "/v1/checkpoints", protocol.Save, "Asks to save a checkpoint."),
    ("put", "/v1/checkpoints/{ticket}", protocol.Saved, "What became of a checkpoint."),
    ("post", "/v1/evaluations", protocol.Evaluate, "Asks for an evaluation."),
    ("post", "/v1/rendezvous", protocol.Meet, "Who trains together; waits for news."),
    ("post", "/v1/rendezvous/leave", protocol.Quit, "A member is in no later round."),
    ("post", "/v1/fail", protocol.Fail, "The job fails."),
    ("post", "/v1/setbacks", protocol.Setback, "Work was lost with the model's state."),
)
_QUESTIONS = (
    ("/v1/evaluations/{model_version}", "What is known of a model version.", True),
    ("/v1/status", "The whole job.", True),
    ("/healthz", "Whether this master serves.", False),
)
_PARAMETERS: dict[str, Json] = {
    "name": _NAME,
    "ticket": {"type": "string", "minLength": 1},
    "model_version": {"type": "integer", "minimum": 0, "maximum": 10**protocol.MOST_DIGITS - 1},
}
_ERRORS = {
    "400": "The body is no JSON.",
    "401": "The token is missing or wrong.",
    "404": "Not joined (field trainer), or no such thing.",
    "409": "Replaced, described differently, of another program, or not the newest model.",
    "413": "The body is too long.",
    "422": "A field is wrong; the answer names it.",
    "507": "The journal cannot be written now: try again.",
}


@cache
def description() -> Json:
    """The document."""
    kinds = [(kind, "validation") for _, _, kind, _ in _CALLS]
    _, schemas = models_json_schema(kinds, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]  # the literal is lost in the list
    paths: Json = {}
    for method, path, kind, summary in _CALLS:
        body = {"$ref": f"#/components/schemas/{kind.__name__}"}
        paths.setdefault(path, {})[method] = _operation(path, summary, body, secured=True)
    for path, summary, secured in _QUESTIONS:
        paths.setdefault(path, {})["get"] = _operation(path, summary, None, secured=secured)
    return {
        "openapi": "3.1.0",
        "info": {"title": "EDL master", "version": "1", "description": "Data of one job."},
        "paths": paths,
        "components": {
            "schemas": {**schemas["$defs"], "Error": _error()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(path: str, summary: str, body: Json | None, *, secured: bool) -> Json:
    answers: Json = {"200": {"description": "Done.", "content": _content({"type": "object"})}}
    for status, why in _ERRORS.items():
        answers[status] = {
            "description": why,
            "content": _content({"$ref": "#/components/schemas/Error"}),
        }
    found: Json = {"summary": summary, "responses": answers}
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if names:
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
            for name in names
        ]
    if body is not None:
        found["requestBody"] = {"required": True, "content": _content(body)}
    if secured:
        found["security"] = [{"token": []}]
    return found


def _content(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _error() -> Json:
    fields: Json = {
        "status": {"type": "integer"},
        "message": {"type": "string"},
        "field": {"type": "string"},
    }
    inner = {"type": "object", "required": ["status", "message"], "properties": fields}
    return {"type": "object", "required": ["error"], "properties": {"error": inner}}
