"""Warnings about labels and annotations of pods under EDL's prefix that do not exist. Pure.

Who calls: `policy.admission.mutation`, for pods and for the pod template of a Job. Those of a Job itself are
refused (`policy.admission.job_spec.check_names`).
"""

from collections.abc import Iterable

from policy.admission import unstructured
from policy.admission.unstructured import Json
from policy.names import GROUP, LABELS, POD_ANNOTATIONS
from policy.nearest import advice

_PREFIX = f"{GROUP}/"
_MAX_CHARS = 63
_MAX_WARNINGS = 5
"""`kubectl` prints each; the API server passes on 4096 characters of them."""


def warnings(pod: Json) -> list[str]:
    """One warning for each such name of a pod or pod template, with the nearest name."""
    texts = [
        *_unknown("label", unstructured.labels(pod), LABELS),
        *_unknown("annotation", unstructured.annotations(pod), POD_ANNOTATIONS),
    ]
    return texts[:_MAX_WARNINGS]


def _unknown(kind: str, names: Iterable[str], known: tuple[str, ...]) -> list[str]:
    unknown = sorted(name for name in names if name.startswith(_PREFIX) and name not in known)
    return [
        f"{kind} {name[:_MAX_CHARS]} does not exist{advice(name, known, _PREFIX)}"
        for name in unknown[:_MAX_WARNINGS]
    ]
