"""The webhook's routes: POST /mutate and POST /validate, and nothing decided here.

Who calls: the API server. Answers come from memory; `webhook.review` decides.
"""

import logging
from collections.abc import Callable

from flask import Flask, Response
from werkzeug.exceptions import BadRequest

from runtime import web
from runtime.clock import monotonic_s
from runtime.logs import keys
from runtime.metrics import Metrics
from webhook import review, wire
from webhook.review import State
from webhook.wire import Answer, Request

log = logging.getLogger(__name__)

_OUTCOMES = ("allowed", "patched", "refused")


def add_routes(app: Flask, state: Callable[[], State], metrics: Metrics) -> None:
    """Adds both routes to an application of `runtime.web`.

    Args:
        app: Gets the routes.
        state: Asked once per review.
        metrics: Gets reviews and their duration.
    """
    zeroed = [(verb, outcome) for verb in ("mutate", "validate") for outcome in _OUTCOMES]
    reviews = metrics.counter(
        "reviews_total", "Admission reviews answered.", ("verb", "outcome"), zeroed
    )
    duration = metrics.histogram(
        "review_seconds", "From the body's last byte to the answer.", ("verb",)
    )

    def answer(verb: str, decide: Callable[[Request, State], Answer]) -> Response:
        body = web.body_json()
        begun_s = monotonic_s()
        try:
            asked = wire.read(body)
        except wire.WireError as error:
            raise BadRequest(str(error)) from error
        given = decide(asked, state())
        reviews.labels(verb, given.outcome).inc()
        duration.labels(verb).observe(monotonic_s() - begun_s)
        _note(verb, asked, given)
        return web.reply(wire.show(given))

    @app.post("/mutate")
    def mutate() -> Response:
        return answer("mutate", review.mutate)

    @app.post("/validate")
    def validate() -> Response:
        return answer("validate", review.validate)


def _note(verb: str, asked: Request, given: Answer) -> None:
    """Logs what changed something; plain consent would be a line per object."""
    if given.outcome == "allowed" and not given.warnings:
        return
    log.info(
        "review answered",
        extra=keys(
            verb=verb,
            outcome=given.outcome,
            object=f"{asked.thing} {asked.namespace}/{asked.name or '(generated)'}",
            reason=given.message or "; ".join(given.warnings),
            dry_run=asked.dry_run,
        ),
    )
