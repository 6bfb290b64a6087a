"""Converts the text of any supported system's job file to a TrainingJob."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edl import nearest
from edl.convert import kubeflow, paddle, paddle_job, torchrun, training_job, volcano
from edl.convert.fields import Fields, Notes
from edl.convert.training_job import Draft
from edl.convert.yaml_file import YamlFile
from edl.errors import SettingError

_KINDS: dict[str, Callable[[Fields, Notes], Draft]] = {
    "paddlepaddle.org/v1 TrainingJob": paddle.convert,
    "batch.volcano.sh/v1alpha1 Job": volcano.convert,
    "kubeflow.org/v1 PyTorchJob": kubeflow.pytorch_job,
    "kubeflow.org/v1 PaddleJob": paddle_job.of_kubeflow,
    "batch.paddlepaddle.org/v1 PaddleJob": paddle_job.of_operator,
    "trainer.kubeflow.org/v1alpha1 TrainJob": kubeflow.train_job,
    "sagemaker.amazonaws.com/v1 HyperPodPyTorchJob": kubeflow.hyperpod,
}
KINDS = tuple(_KINDS)
"""Supported API versions and kinds. Command lines of `paddlecloud submit` are supported, too."""


def convert(
    text: str, name: str, least: int | None = None, most: int | None = None
) -> tuple[dict[str, Any], Notes]:
    """Converts a job file.

    Args:
        text: The file's content: YAML or JSON, or a command line of `paddlecloud submit`.
        name: The file's name, for messages.
        least: The minimum number of trainers; None keeps the file's minimum.
        most: The maximum number of trainers; None keeps the file's maximum.

    Returns:
        The TrainingJob, and notes about the file's fields that a TrainingJob does not have in the same
        form.

    Raises:
        EdlError: A field is unknown or invalid; the message names it and its line.
    """
    notes = Notes()
    draft = _draft(text, name, notes)
    bounds = f"{draft.at_bounds}, --min, --max" if (least or most) else draft.at_bounds
    low = draft.least if least is None else least
    high = draft.most if most is None else most
    draft = replace(draft, least=low, most=high, at_bounds=bounds)
    if draft.has_store:
        torchrun.check_command(draft, notes)
    if draft.least == draft.most:
        notes.hints.append(
            f"{draft.at_bounds}: the number of trainers is fixed: --min and --max make the job elastic"
        )
    return training_job.build(draft), notes


def _draft(text: str, name: str, notes: Notes) -> Draft:
    if text.split()[:2] == ["paddlecloud", "submit"]:
        return paddle.from_command(text, notes)
    file = YamlFile(text, name)
    fields = Fields(file.value, file.lines, (), notes)
    kind = f"{fields.text('apiVersion')} {fields.text('kind')}"
    reader = _KINDS.get(kind)
    if reader is None:
        advice = nearest.advice(kind, KINDS)
        raise SettingError(
            f"{name} is {kind.strip() or 'of no kind'!r:.80}{advice}: edl convert reads "
            f"{', '.join(KINDS)}, and paddlecloud submit"
        )
    draft = reader(fields, notes)
    fields.check_rest()
    return draft
