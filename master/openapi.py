"""The protocol's OpenAPI description, made from the classes that check the bodies."""

from functools import cache

from pydantic.json_schema import models_json_schema

from master import key_protocol, protocol, rewind_protocol
from runtime.call_checks import MAX_DIGITS, Json

_ABOUT = (
    f"Data of one job. A caller whose header {protocol.VERSION_HEADER} is a newer version may send "
    "fields that are not described here: they are ignored. From others they are refused."
)
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.:-]*$", "maxLength": 253}
_CALLS = (
    ("post", "/v1/join", protocol.JoinRequest, "A trainer begins, or connects to a new master."),
    (
        "post",
        "/v1/terms",
        protocol.TermRequest,
        "The group's leader begins a term, in a later round.",
    ),
    (
        "put",
        "/v1/datasets/{name}",
        protocol.DatasetDescription,
        "Describes a data set; the first wins.",
    ),
    ("post", "/v1/work", protocol.WorkRequest, "Acknowledges and leases."),
    ("post", "/v1/heartbeat", protocol.HeartbeatRequest, "A trainer is alive."),
    (
        "post",
        "/v1/heartbeats",
        protocol.HeartbeatsRequest,
        "Several trainers are alive; an answer or an error for each.",
    ),
    ("post", "/v1/leave", protocol.LeaveRequest, "A trainer ends."),
    ("post", "/v1/checkpoints", protocol.CheckpointRequest, "Asks to save a checkpoint."),
    (
        "put",
        "/v1/checkpoints/{ticket}",
        protocol.CheckpointReport,
        "The result of saving a checkpoint.",
    ),
    ("post", "/v1/evaluations", protocol.EvaluationRequest, "Asks for an evaluation."),
    (
        "post",
        "/v1/rendezvous",
        protocol.RendezvousPoll,
        "Reports a member's state; waits for the next round.",
    ),
    (
        "post",
        "/v1/rendezvous/leave",
        protocol.RendezvousLeave,
        "Excludes a member from later rounds.",
    ),
    ("post", "/v1/rounds/keys/set", key_protocol.KeySet, "Sets a key of a round."),
    ("post", "/v1/rounds/keys/delete", key_protocol.KeyDelete, "Deletes keys of a round."),
    ("post", "/v1/rounds/keys/add", key_protocol.KeyAdd, "Adds to a counter of a round."),
    (
        "post",
        "/v1/rounds/keys/get",
        key_protocol.KeyGet,
        "Reads keys of a round; waits until all are set.",
    ),
    ("post", "/v1/fail", protocol.JobFailure, "The job fails."),
    ("post", "/v1/position", rewind_protocol.PositionRequest, "The position in a data set."),
    ("post", "/v1/rewind", rewind_protocol.RewindRequest, "Sets the data back with the model."),
    ("post", "/v1/setbacks", protocol.RollbackReport, "Work was lost with the model's state."),
)
_QUERIES = (
    ("/v1/evaluations/{model_version}", "The evaluations of a model version.", True),
    ("/v1/status", "The status of the job.", True),
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
    kinds = [(kind, "validation") for _, _, kind, _ in _CALLS]
    _, schemas = models_json_schema(kinds, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]  # the literal is lost in the list
    paths: Json = {}
    for method, path, kind, summary in _CALLS:
        body = {"$ref": f"#/components/schemas/{kind.__name__}"}
        paths.setdefault(path, {})[method] = _operation(path, summary, body, secured=True)
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
