"""A model file for `edl train`: one of the examples, with a pause in each batch.

Four trainers on two cores are no faster than two; with a pause in each batch they are, as with a
machine for each. Environment variables give the example, a module beside this file, and the pause.
"""

import importlib
import os
import time
from typing import Any

_EXAMPLE = importlib.import_module(os.environ["EXAMPLE"])
_PAUSE_S = float(os.environ["PAUSE_S"])

model = _EXAMPLE.model
optimizer = _EXAMPLE.optimizer
feed = _EXAMPLE.feed
metrics = _EXAMPLE.metrics


def loss(outputs: Any, labels: Any) -> Any:
    """Returns the example's loss, after the pause."""
    time.sleep(_PAUSE_S)
    return _EXAMPLE.loss(outputs, labels)
