"""Settings of the servers of one job: master and parameter servers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field
from typing_extensions import override

from runtime.settings import Settings, SettingsError

_TOKEN = "EDL_TOKEN"  # noqa: S105 - a variable's name
_SHARED = {"JOB": "EDL_JOB", "TOKEN_FILE": "EDL_TOKEN_FILE"}
"""Field -> the variable that trainers read too, so that servers and trainers can share an environment."""
_MIN_TOKEN = 16


class JobServerSettings(Settings):
    """Settings of a job's server. The job's token is in EDL_TOKEN or in a file."""

    job: Annotated[str, Field(min_length=1, max_length=253)] = "job"
    """The job's name; also in EDL_JOB."""
    token_file: Path | None = None
    """File that holds the job's token, at least 16 characters; also in EDL_TOKEN_FILE."""

    @override
    @classmethod
    def read(cls, flags: Mapping[str, object], environ: Mapping[str, str]) -> Self:
        """Builds the settings; the component's variables win over shared ones."""
        shared = {
            f"EDL_{cls.component.upper()}_{field}": environ[variable]
            for field, variable in _SHARED.items()
            if variable in environ
        }
        return super().read(flags, {**shared, **environ})

    def read_token(self, environ: Mapping[str, str] = os.environ) -> str:
        """Returns the job's token.

        Raises:
            SettingsError: the token is missing, cannot be read, or is too short to be a secret.
        """
        source, token = _TOKEN, environ.get(_TOKEN, "")
        if self.token_file is not None:
            source = f"--token-file {self.token_file}"
            try:
                token = self.token_file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise SettingsError(f"{source}: {reason}") from error
        token = token.strip()
        if len(token) < _MIN_TOKEN:
            raise SettingsError(
                f"{source} must hold the job's token, at least {_MIN_TOKEN} characters: trainers "
                "need the same one"
            )
        return token
