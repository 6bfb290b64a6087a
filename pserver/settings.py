"""Settings of a parameter server, from its command line and environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from runtime.settings import Address, Settings, SettingsError

TOKEN = "EDL_TOKEN"  # noqa: S105 - a variable's name
"""Trainers read the same variable, and EDL_TOKEN_FILE."""
_SHARED = {"EDL_PSERVER_JOB": "EDL_JOB", "EDL_PSERVER_TOKEN_FILE": "EDL_TOKEN_FILE"}
_LEAST_TOKEN = 16


class PserverSettings(Settings):
    """Settings of `python -m pserver`. The token comes in EDL_TOKEN, or in a file."""

    component: ClassVar[str] = "pserver"

    index: Annotated[int, Field(ge=0, lt=4096)] = 0
    """Which of the job's servers this is, from 0."""
    of: Annotated[int, Field(ge=1, le=4096)] = 1
    """Number of servers of the job."""
    job: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")
    ] = "job"
    """The job's name; may also be set by EDL_JOB."""
    listen: Address = "127.0.0.1:8791"
    """Address and port to listen at; port 0 chooses a free one."""
    checkpoints: Path = Path("edl-pserver")
    """Directory of checkpoints; servers may share it or use one each. It is created if missing."""
    token_file: Path | None = None
    """File with the job's token, at least 16 characters; may also be set by EDL_TOKEN_FILE."""
    max_bytes: Annotated[int, Field(ge=0)] = 0
    """Limit of parameters and optimizer state in bytes; 0 is 70 % of the container's memory."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.index >= self.of:
            raise ValueError(f"--index is {self.index}, it must be below --of, which is {self.of}")
        return self


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment, with the variables shared with trainers under this component's names."""
    shared = {own: environ[name] for own, name in _SHARED.items() if name in environ}
    return {**shared, **environ}


def read_token(settings: PserverSettings, environ: Mapping[str, str] = os.environ) -> str:
    """The job's token.

    Raises:
        SettingsError: It is missing, unreadable or too short.
    """
    source = TOKEN
    token = environ.get(TOKEN, "")
    if settings.token_file is not None:
        source = f"--token-file {settings.token_file}"
        try:
            token = settings.token_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise SettingsError(f"{source}: {reason}") from error
    token = token.strip()
    if len(token) < _LEAST_TOKEN:
        raise SettingsError(
            f"{source} must hold the job's token, at least {_LEAST_TOKEN} characters: trainers "
            "need the same one"
        )
    return token
