"""Settings of the master, from its command line and its environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from master.ledger import MOST_DROPPED
from master.rendezvous import STUCK_S
from runtime.settings import Address, Settings, SettingsError

TRAINERS_JOB, TRAINERS_TOKEN_FILE = "EDL_JOB", "EDL_TOKEN_FILE"
TOKEN = "EDL_TOKEN"  # noqa: S105 - a variable's name
"""The variables that trainers read too, so that one environment works for both."""


class MasterSettings(Settings):
    """Settings of `python -m master`. The token is in EDL_TOKEN, or in a file."""

    component: ClassVar[str] = "master"

    job: Annotated[str, Field(min_length=1, max_length=253)] = "job"
    """The job's name; also in EDL_JOB."""
    listen: Address = "127.0.0.1:8790"
    """Address and port to serve at; port 0 for a free one."""
    journal: Path = Path("edl-journal")
    """Directory of the journal; it is created if it is missing."""
    token_file: Path | None = None
    """File that holds the job's token, at least 16 characters; also in EDL_TOKEN_FILE."""
    snapshot_configmap: str = ""
    """NAMESPACE/NAME of a ConfigMap for snapshots, so that another pod can take over."""
    kubeconfig: Path | None = None
    """Kubeconfig for that ConfigMap; default is the pod's service account."""
    heartbeat_seconds: Annotated[float, Field(ge=0.05, le=60)] = 2.0
    """Interval of trainers' heartbeats; after three missing ones a trainer counts as dead."""
    stuck_seconds: Annotated[float, Field(ge=1, le=86_400)] = STUCK_S
    """A member of a synchronous job for which the others wait longer than this is dropped."""
    most_dropped: Annotated[int, Field(ge=0)] = MOST_DROPPED
    """Tasks that may fail for good before the job fails."""
    max_steps: Annotated[int, Field(ge=1)] | None = None
    """Training ends after this many steps of all trainers together, whatever data is left."""

    @field_validator("snapshot_configmap")
    @classmethod
    def _configmap(cls, value: str) -> str:
        if value and not all(value.partition("/")):
            raise ValueError(f"{value!r} is not NAMESPACE/NAME")
        return value


_LEAST_TOKEN = 16


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment, with the variables shared with trainers under the names of this component."""
    shared = {"EDL_MASTER_JOB": TRAINERS_JOB, "EDL_MASTER_TOKEN_FILE": TRAINERS_TOKEN_FILE}
    renamed = {own: environ[name] for own, name in shared.items() if name in environ}
    return {**renamed, **environ}


def read_token(settings: MasterSettings, environ: Mapping[str, str] = os.environ) -> str:
    """The job's token.

    Raises:
        SettingsError: It is missing, cannot be read, or is too short to be a secret.
    """
    if settings.token_file is not None:
        try:
            token = settings.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise SettingsError(f"--token-file {settings.token_file}: {reason}") from error
        source = f"--token-file {settings.token_file}"
    else:
        token, source = environ.get(TOKEN, "").strip(), TOKEN
    if len(token) < _LEAST_TOKEN:
        raise SettingsError(
            f"{source} must hold the job's token, at least {_LEAST_TOKEN} characters: trainers "
            "need the same one"
        )
    return token
