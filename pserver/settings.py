"""What a parameter server can be told on its command line or in its environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from runtime.settings import Address, Settings, SettingsError

TOKEN = "EDL_TOKEN"  # noqa: S105 - a variable's name
"""The same variable that trainers read, as is EDL_TOKEN_FILE."""
_SHARED = {"EDL_PSERVER_JOB": "EDL_JOB", "EDL_PSERVER_TOKEN_FILE": "EDL_TOKEN_FILE"}
_LEAST_TOKEN = 16


class PserverSettings(Settings):
    """Settings of `python -m pserver`. The token comes in EDL_TOKEN, or in a file."""

    room: ClassVar[str] = "pserver"

    index: Annotated[int, Field(ge=0, lt=4096)] = 0
    """Which of the job's servers this is, from 0."""
    of: Annotated[int, Field(ge=1, le=4096)] = 1
    """How many there are."""
    job: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")
    ] = "job"
    """The job's name; EDL_JOB says it too."""
    listen: Address = "127.0.0.1:8791"
    """Address and port to serve at; port 0 takes a free one."""
    checkpoints: Path = Path("edl-pserver")
    """Directory of checkpoints; servers may share it or have one each. It is made if missing."""
    token_file: Path | None = None
    """File that holds the job's token, at least 16 characters; EDL_TOKEN_FILE says it too."""
    max_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes that parameters and optimizer state may take; 0 is seven tenths of the container's memory."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.index >= self.of:
            raise ValueError(f"--index is {self.index}, it must be below --of, which is {self.of}")
        return self


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment, with the variables that trainers share under the names of this room."""
    found = {own: environ[name] for own, name in _SHARED.items() if name in environ}
    return {**found, **environ}


def read_token(settings: PserverSettings, environ: Mapping[str, str] = os.environ) -> str:
    """The job's token.

    Raises:
        SettingsError: It is missing, cannot be read, or is too short to be a secret.
    """
    source = TOKEN
    token = environ.get(TOKEN, "")
    if settings.token_file is not None:
        source = f"--token-file {settings.token_file}"
        try:
            token = settings.token_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise SettingsError(f"{source}: {why}") from error
    token = token.strip()
    if len(token) < _LEAST_TOKEN:
        raise SettingsError(
            f"{source} must hold the job's token, at least {_LEAST_TOKEN} characters: trainers "
            "need the same one"
        )
    return token
