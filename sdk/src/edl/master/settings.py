"""Settings from the environment: the master's address, this trainer's name, timeouts."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from edl.errors import SettingError
from edl.master.variables import report_unknown, whole
from edl.overriding import override
from edl_protocol.master import is_name

GRACE_S = 1.5
PATIENCE_S = 600.0
_MAX_HOST_CHARS = 253


@dataclass(frozen=True)
class Settings:
    """A trainer's settings, read once at start; `repr` does not show the token."""

    master: str
    """`http://host:port` or `https://host:port`."""
    token: str
    trainer: str
    job: str = ""
    """The job that this trainer belongs to; "" accepts any job that the master serves."""
    grace_s: float = GRACE_S
    """Maximum seconds from SIGTERM to exit."""
    patience_s: float = PATIENCE_S
    """Seconds that a loop without tasks waits for a master that is away."""
    address: str = "127.0.0.1"
    """Host at which other trainers reach this trainer."""
    exchange_port: int = 0
    """Port on which this trainer listens for other trainers; 0 for any free port."""
    max_trainers: int = 0
    """The job's maximum number of trainers; 0 if not set."""
    servers: tuple[str, ...] = ()
    """URLs of the parameter servers, ordered by index."""

    @override
    def __repr__(self) -> str:
        return f"Settings(master={self.master!r}, trainer={self.trainer!r}, job={self.job!r})"


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Reads the settings from an environment, `os.environ` by default.

    Raises:
        SettingError: A variable is missing or invalid; the message names it.
    """
    if environ is None:
        report_unknown()
    variables = os.environ if environ is None else environ
    return Settings(
        master=_master(variables.get("EDL_MASTER", "")),
        token=_token(variables),
        trainer=_trainer(variables.get("EDL_TRAINER", "")),
        job=variables.get("EDL_JOB", ""),
        grace_s=_seconds(variables, "EDL_GRACE_S", GRACE_S),
        patience_s=_seconds(variables, "EDL_PATIENCE_S", PATIENCE_S),
        address=_host(variables.get("EDL_ADDRESS", "")),
        exchange_port=whole(variables, "EDL_EXCHANGE_PORT", maximum=65_535),
        max_trainers=whole(variables, "EDL_MAX_TRAINERS", maximum=1_000_000),
        servers=_servers(variables.get("EDL_PARAMETER_SERVERS", "")),
    )


def _master(url: str) -> str:
    if not url:
        raise SettingError(
            "EDL_MASTER is not set: start this program with `edl run`, or set it to the master's "
            "address, for example http://127.0.0.1:8790"
        )
    return _url("EDL_MASTER", url)


def _servers(text: str) -> tuple[str, ...]:
    return tuple(_url("EDL_PARAMETER_SERVERS", url.strip()) for url in text.split(",") if text)


def _url(name: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise SettingError(f"{name} is {url!r}: write http://host:port or https://host:port")
    return url.rstrip("/")


def _host(text: str) -> str:
    host = text.strip().strip("[]") or "127.0.0.1"
    if len(host) > _MAX_HOST_CHARS or any(char.isspace() or char in "/@?#" for char in host):
        raise SettingError(
            f"EDL_ADDRESS is {text!r:.60}: write this trainer's host or IP address, without a port"
        )
    return host


def _trainer(name: str) -> str:
    trainer = name or f"{socket.gethostname()}-{os.getpid()}"
    if not is_name(trainer):
        raise SettingError(
            f"EDL_TRAINER is {trainer!r:.60}: use letters, digits and _ . : -, for example trainer-3"
        )
    return trainer


def _token(environ: Mapping[str, str]) -> str:
    path = environ.get("EDL_TOKEN_FILE")
    if path:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not a text file"
            raise SettingError(f"EDL_TOKEN_FILE {path!r} cannot be read: {reason}") from error
        name = f"the file {path!r} (EDL_TOKEN_FILE)"
    else:
        token = environ.get("EDL_TOKEN", "").strip()
        name = "EDL_TOKEN"
    if not token:
        raise SettingError(f"{name} is empty: set EDL_TOKEN_FILE or EDL_TOKEN to the job's token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise SettingError(
            f"{name} holds characters that are invalid in a token: use letters and digits"
        )
    return token


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if text is None or not text.strip():
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise SettingError(
            f"{name} is {text!r}: write a number of seconds above 0, for example 1.5"
        )
    return value
