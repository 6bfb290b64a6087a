"""Settings of a job's servers, and the job's token."""

from pathlib import Path
from typing import ClassVar

import pytest

from runtime.job_settings import JobServerSettings
from runtime.settings import SettingsError

LONG = "token-of-a-job-of-tests"


class AtticSettings(JobServerSettings):
    """Settings of a server."""

    component: ClassVar[str] = "attic"


def test_trainers_variables_are_read_too() -> None:
    """The component's own win."""
    shared = {"EDL_JOB": "digits", "EDL_TOKEN_FILE": "/token"}
    settings = AtticSettings.read({}, shared)

    assert (settings.job, settings.token_file) == ("digits", Path("/token"))
    assert AtticSettings.read({}, {**shared, "EDL_ATTIC_JOB": "words"}).job == "words"
    assert AtticSettings.read({"job": "flags"}, shared).job == "flags"


def test_the_token_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    """As trainers have it; too short or missing ones are no secret."""
    environ = {"EDL_JOB": "digits", "EDL_TOKEN": LONG}
    settings = AtticSettings.read({}, environ)
    path = tmp_path / "token"
    path.write_text(f"{LONG}2\n")
    file = settings.model_copy(update={"token_file": path})

    assert settings.job == "digits"
    assert settings.read_token(environ) == LONG
    assert file.read_token(environ) == f"{LONG}2"
    with pytest.raises(SettingsError, match="at least 16 characters"):
        settings.read_token({"EDL_TOKEN": "short"})
    path.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="it is not text"):
        file.read_token(environ)
    path.unlink()
    with pytest.raises(SettingsError, match="No such file"):
        file.read_token(environ)
