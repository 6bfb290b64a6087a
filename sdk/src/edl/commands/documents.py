"""Prints Kubernetes objects as JSON for kubectl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edl.errors import SettingError
from edl.jobs.flags import CLOSED_PIPE, DONE
from edl.local.output import discard_output


def print_objects(*objects: Mapping[str, Any]) -> int:
    """Prints objects as indented JSON; wraps several objects in a List, which kubectl can read.

    Returns:
        The exit code.

    Raises:
        SettingError: The output cannot be written, for example because the disk is full.
    """
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    try:
        print(json.dumps(objects[0] if len(objects) == 1 else document, indent=2), flush=True)
    except OSError as error:
        discard_output()
        if isinstance(error, BrokenPipeError):
            return CLOSED_PIPE  # the reader, such as kubectl, reports why it ended
        raise SettingError(f"cannot write the output: {error.strerror}") from error
    return DONE
