"""The webhook's routes: POST /mutate and POST /validate.

The API server calls them. `webhook.review` decides, from state in memory.
"""

import logging
from collections.abc import Callable

from flask import Flask, Response
from werkzeug.exceptions import BadRequest, ServiceUnavailable

from runtime import web
from runtime.clock import monotonic_s
from runtime.logs import keys
from runtime.metrics import Metrics
from webhook import review
from webhook.review import AdmissionContext, AdmissionRequest, AdmissionResponse

log = logging.getLogger(__name__)

_OUTCOMES = ("allowed", "patched", "refused")


def add_routes(app: Flask, context: Callable[[], AdmissionContext], metrics: Metrics) -> None:
    """Adds both routes to an application of `runtime.web`.

    Args:
        app: The application.
        context: Returns the current context; called once per review.
        metrics: Records reviews and their duration.
    """
    zeroed = [(verb, outcome) for verb in ("mutate", "validate") for outcome in _OUTCOMES]
    reviews = metrics.counter(
        "reviews_total", "Admission reviews answered.", ("verb", "outcome"), zeroed
    )
    duration = metrics.histogram(
        "review_seconds", "Time from the body's last byte to the answer.", ("verb",)
    )

    def answer(
        verb: str, decide: Callable[[AdmissionRequest, AdmissionContext], AdmissionResponse]
    ) -> Response:
        body = web.body_json()
        begun_s = monotonic_s()
        try:
            request = review.read(body)
        except review.ReviewError as error:
            raise BadRequest(str(error)) from error
        inputs = context()
        if not inputs.usable and request.resource_name != "configmaps":
            raise ServiceUnavailable(
                "this server has read no valid policy since it started, so it cannot review objects: correct "
                "ConfigMap edl-policy; /readyz has the error"
            )
        response = decide(request, inputs)
        reviews.labels(verb, response.outcome).inc()
        duration.labels(verb).observe(monotonic_s() - begun_s)
        _note(verb, request, response)
        return web.reply(review.to_json(response))

    @app.post("/mutate")
    def mutate() -> Response:
        return answer("mutate", review.mutate)

    @app.post("/validate")
    def validate() -> Response:
        return answer("validate", review.validate)


def _note(verb: str, request: AdmissionRequest, response: AdmissionResponse) -> None:
    """Logs a review that patched, refused or warned; logging all reviews would write a line per object."""
    if response.outcome == "allowed" and not response.warnings:
        return
    log.info(
        "review answered",
        extra=keys(
            verb=verb,
            outcome=response.outcome,
            object=f"{request.resource_name} {request.namespace}/{request.name or '(generated)'}",
            reason=response.message or "; ".join(response.warnings),
            dry_run=request.dry_run,
        ),
    )
