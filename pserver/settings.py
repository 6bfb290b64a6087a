"""Settings of a parameter server, from its command line and environment."""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from pserver.model import MAX_DENSE_NUMBERS
from runtime.job_settings import JobServerSettings
from runtime.settings import Address


class PserverSettings(JobServerSettings):
    """Settings of `python -m pserver`."""

    component: ClassVar[str] = "pserver"

    index: Annotated[int, Field(ge=0, lt=4096)] = 0
    """Index of this server among the servers of the job, from 0."""
    of: Annotated[int, Field(ge=1, le=4096)] = 1
    """Number of servers of the job."""
    job: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")
    ] = "job"
    """Name of the job, and of the folder with its checkpoints; may also be set by EDL_JOB."""
    listen: Address = "127.0.0.1:8791"
    """Address and port to listen at; port 0 chooses a free one."""
    checkpoints: Path = Path("edl-pserver")
    """Directory of checkpoints, shared by all servers or separate. It is created if it is missing."""
    max_bytes: Annotated[int, Field(ge=0)] = 0
    """Limit of parameters and optimizer state in bytes; 0 is 70 % of the container's memory."""

    max_dense_numbers: Annotated[int, Field(ge=1)] = MAX_DENSE_NUMBERS
    """Largest number of dense parameters of a model; use synchronous training for larger models."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.index >= self.of:
            raise ValueError(f"--index is {self.index}, it must be below --of, which is {self.of}")
        return self
