"""AdmissionReviews in the shape in which API servers send them (tests/vectors/admission)."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

from webhook import review as reviews
from webhook.review import AdmissionRequest

_FOLDER = Path(__file__).parents[1] / "vectors" / "admission"
NAMES = tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.json").read_text()


def review(name: str) -> dict[str, Any]:
    """The whole review, one's own to change."""
    document: dict[str, Any] = json.loads(_text(name))
    return document


def thing(name: str) -> dict[str, Any]:
    """The object in it."""
    obj: dict[str, Any] = review(name)["request"]["object"]
    return obj


def request(name: str, **changes: Any) -> AdmissionRequest:
    """The request in it, with some fields changed."""
    return reviews.read(review(name)).model_copy(update=copy.deepcopy(changes))
