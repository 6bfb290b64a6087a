"""Parses Kubernetes quantities and catches likely typos. Pure."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from edl.errors import SettingError

_CPU = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(m?)", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)(Ki|Mi|Gi|Ti|k|M|G|T|)", re.ASCII)
_BYTES = {
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}
_MILLI = 1000
_MIN_MIB = 16
"""A Python interpreter needs more than this; below it, the unit is probably missing."""
MIN_SERVER_MIB = 128
"""Memory that an empty parameter server uses, and the minimum in EDL's admission."""


def cpu_millis(flag: str, text: str) -> int:
    """Parses an amount of CPU; returns it in thousandths of a CPU.

    Raises:
        SettingError: The amount is invalid or zero.
    """
    match = _CPU.fullmatch(text)
    millis = 0 if match is None else Decimal(match[1]) * (1 if match[2] else _MILLI)
    if millis < 1 or millis != int(millis):
        raise SettingError(f"{flag} is {text!r:.40}: write CPUs, for example 2, 0.5 or 500m")
    return int(millis)


def check_memory(flag: str, text: str, min_mib: int = _MIN_MIB) -> None:
    """Checks an amount of memory.

    Raises:
        SettingError: The amount is invalid, or less than `min_mib` MiB.
    """
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise SettingError(f"{flag} is {text!r:.40}: write memory, for example 512Mi or 4Gi")
    size = math.ceil(Decimal(match[1]) * _BYTES[match[2]])
    if size < min_mib << 20:
        raise SettingError(
            f"{flag} is {text!r:.40}, which is {size} bytes: write at least {min_mib}Mi, "
            "for example 512Mi or 4Gi"
        )
