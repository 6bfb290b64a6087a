"""`python -m bench.annotations_page`: writes docs/annotations.md from `policy.names`.

The text of a name is the docstring below it there.
"""

import ast
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from bench import written_page
from policy import names
from policy.names import JOB_ANNOTATIONS, LABELS, OWN_JOB_ANNOTATIONS, POD_ANNOTATIONS

PAGE = Path(__file__).parents[1] / "docs" / "annotations.md"
_INTRODUCTION = """# Annotations and labels

`make reference` writes this page from the code; do not edit it.

An annotation `edl.training/...` of a Job that does not exist is refused, with the nearest name that does. Labels and annotations of that
form on pods, and on a Job's pod template, are warnings that `kubectl` prints. Values are text: `"2"`, not `2`. A
[TrainingJob](training-job.md) has fields for those that users write.
"""
_ANNOTATIONS, _LABELS, _RESOURCES = "ANNOTATION_", "LABEL_", ""
"""Beginnings of constants' names: an annotation and a label may have the same name."""


def texts(prefix: str) -> dict[str, str]:
    """What each name means: the docstring below its constant in `policy.names`, in one line.

    Args:
        prefix: Of the constants' names.
    """
    body = ast.parse(Path(names.__file__).read_text("utf-8")).body
    meanings = {}
    for statement, following in pairwise(body):
        if not isinstance(statement, ast.Assign) or not isinstance(following, ast.Expr):
            continue
        (target,) = statement.targets
        text = following.value
        if not isinstance(target, ast.Name) or not target.id.startswith(prefix):
            continue
        if isinstance(text, ast.Constant):
            meanings[str(getattr(names, target.id))] = " ".join(str(text.value).split())
    return meanings


def page() -> str:
    """Returns the text of the page: a table for each section."""
    users = [name for name in JOB_ANNOTATIONS if name not in OWN_JOB_ANNOTATIONS]
    pods = [name for name in POD_ANNOTATIONS if name not in JOB_ANNOTATIONS]
    resources = [names.TRAINER_RESOURCE, names.CHECK_RESOURCE]
    return "\n".join(
        [
            _INTRODUCTION,
            _table("Annotations of Jobs, by users", users, _ANNOTATIONS),
            _table("Annotations of Jobs, by EDL", OWN_JOB_ANNOTATIONS, _ANNOTATIONS),
            _table("Annotations of pods, by EDL", pods, _ANNOTATIONS),
            _table("Labels of pods", LABELS, _LABELS),
            _table("Labels of Jobs, by EDL", [names.LABEL_TRAINING_JOB], _LABELS),
            _table("Resources that pods request", resources, _RESOURCES),
        ]
    )


def _table(title: str, listed: Iterable[str], prefix: str) -> str:
    meanings = texts(prefix)
    rows = "".join(f"| `{name}` | {meanings[name]} |\n" for name in listed)
    return f"## {title}\n\n| Name | Meaning |\n|---|---|\n{rows}"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page.

    Returns:
        0.
    """
    return written_page.write("bench.annotations_page", __doc__, PAGE, page, argv)


if __name__ == "__main__":
    sys.exit(main())
