"""The protocol's OpenAPI description, made from the classes that check the bodies."""

from functools import cache

from edl_protocol import master as protocol
from edl_protocol.fields import Call, Message
from pydantic import TypeAdapter

from runtime.call_checks import MAX_DIGITS, Json, reader

_ABOUT = (
    f"Data of one job. A caller whose header {protocol.VERSION_HEADER} is a newer version may send "
    "fields that are not described here: they are ignored. From others they are refused."
)
_NAME = {
    "type": "string",
    "pattern": protocol.NAME_PATTERN,
    "maxLength": protocol.MAX_NAME_CHARS,
}
_CALLS: tuple[type[Call], ...] = (
    protocol.JoinRequest,
    protocol.TermRequest,
    protocol.DatasetDescription,
    protocol.WorkRequest,
    protocol.HeartbeatRequest,
    protocol.HeartbeatsRequest,
    protocol.LeaveRequest,
    protocol.CheckpointRequest,
    protocol.CheckpointReport,
    protocol.EvaluationRequest,
    protocol.RendezvousPoll,
    protocol.RendezvousLeave,
    protocol.KeySet,
    protocol.KeyDelete,
    protocol.KeyAdd,
    protocol.KeyGet,
    protocol.JobFailure,
    protocol.PositionRequest,
    protocol.RewindRequest,
    protocol.RollbackReport,
)
_QUERIES = (
    (protocol.EVALUATION_PATH, "The evaluations of a model version.", True),
    (protocol.STATUS_PATH, "The status of the job.", True),
    ("/healthz", "Whether this master serves.", False),
)
_PARAMETERS: dict[str, Json] = {
    "name": _NAME,
    "ticket": {"type": "string", "minLength": 1},
    "model_version": {"type": "integer", "minimum": 0, "maximum": 10**MAX_DIGITS - 1},
}
_ERRORS = {
    "400": "The body is not JSON.",
    "401": "The token is missing or wrong.",
    "404": "Not joined (field trainer), or it does not exist.",
    "408": "The body did not arrive in time.",
    "415": "The body is compressed.",
    "409": "Replaced, described differently, of another program, or not the newest model; or the "
    "round is over.",
    "413": "The body is too long, or there is no room for a key.",
    "422": "A field is wrong; the answer names it.",
    "507": "The journal cannot be written now: try again.",
}


@cache
def description() -> Json:
    """The OpenAPI document."""
    _, schemas = TypeAdapter.json_schemas(
        [(kind.__name__, "validation", reader(kind)) for kind in _CALLS],
        ref_template="#/components/schemas/{model}",
    )
    for name, schema in schemas["$defs"].items():
        _describe_inherited(getattr(protocol, name), schema["properties"])
    paths: Json = {}
    for kind in _CALLS:
        body = {"$ref": f"#/components/schemas/{kind.__name__}"}
        summary = (kind.__doc__ or "").partition("\n")[0]
        operation = _operation(kind.PATH, summary, body, secured=True)
        paths.setdefault(kind.PATH, {})[kind.METHOD.lower()] = operation
    for path, summary, secured in _QUERIES:
        paths.setdefault(path, {})["get"] = _operation(path, summary, None, secured=secured)
    return {
        "openapi": "3.1.0",
        "info": {"title": "EDL master", "version": str(protocol.VERSION), "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {**schemas["$defs"], "Error": _error()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_inherited(kind: type[Message], properties: Json) -> None:
    """Adds the descriptions of inherited fields, which pydantic leaves out."""
    for base in kind.__mro__[1:]:
        if base is not object:
            inherited = reader(base).json_schema().get("properties", {})
            for name in inherited:
                properties[name] = {**inherited[name], **properties[name]}


def _operation(path: str, summary: str, body: Json | None, *, secured: bool) -> Json:
    answers: Json = {"200": {"description": "Done.", "content": _content({"type": "object"})}}
    for status, meaning in _ERRORS.items():
        answers[status] = {
            "description": meaning,
            "content": _content({"$ref": "#/components/schemas/Error"}),
        }
    operation: Json = {"summary": summary, "responses": answers}
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
            for name in names
        ]
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(body)}
    if secured:
        operation["security"] = [{"token": []}]
    return operation


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
