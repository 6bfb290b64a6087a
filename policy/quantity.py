"""Kubernetes resource quantities as integers: "500m" CPU is 500, "1Gi" memory is 1073741824.

CPU is counted in millicores, every other resource in its unit (bytes, devices). Fractions are rounded
away from zero, as in kube-scheduler (k8s.io/apimachinery resource.Quantity `MilliValue` and `Value`).
No floats are used, so sums are exact.
"""

import re
from collections.abc import Mapping
from decimal import Context, Decimal
from functools import lru_cache

from policy.errors import QuantityError

_SUFFIXES = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?:[eE](?P<exponent>[+-]?\d{1,3})|(?P<suffix>n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)",
    re.ASCII,
)
_EXACT = Context(prec=100)
"""Decimal context with more digits than a quantity of 64 characters, so that no fraction is lost."""
_MAX_INT64 = 2**63 - 1
_MILLI = 1000


def _round_up(value: Decimal) -> int:
    """Rounds away from zero to an integer, limited to int64 like upstream."""
    whole = int(value)
    if value != whole:
        whole += 1 if value > 0 else -1
    return max(-_MAX_INT64, min(_MAX_INT64, whole))


@lru_cache(maxsize=4096)
def parse(resource: str, text: str) -> int:
    """Returns the amount of a quantity: millicores for cpu, units for all other resources.

    Raises:
        QuantityError: The text is not a quantity; the message shows it and an example.
    """
    match = _NUMBER.fullmatch(text) if len(text) <= 64 else None  # noqa: PLR2004 - upstream's limit
    if match is None:
        example = "500m or 2" if resource == "cpu" else "512Mi or 8Gi"
        raise QuantityError(
            f"{resource}: {text[:64]!r} is not a quantity; write for example {example}"
        )
    value = Decimal(match["number"])
    if match["exponent"] is not None:
        value = _EXACT.scaleb(value, int(match["exponent"]))
    else:
        value = _EXACT.multiply(value, _SUFFIXES[match["suffix"] or ""])
    return _round_up(_EXACT.multiply(value, Decimal(_MILLI if resource == "cpu" else 1)))


def parse_all(amounts: Mapping[str, object]) -> dict[str, int]:
    """Returns resource -> amount for a map of `requests` or `allocatable`.

    Raises:
        QuantityError: A value is not a quantity.
    """
    return {name: parse(name, str(value)) for name, value in amounts.items()}


def show(resource: str, amount: int) -> str:
    """Returns an amount in its shortest usual form: "5", "500m", "8Gi". `parse` restores it exactly."""
    if resource == "cpu":
        whole, remainder = divmod(amount, _MILLI)
        return f"{amount}m" if remainder else str(whole)
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        whole, remainder = divmod(amount, int(_SUFFIXES[suffix]))
        if whole and not remainder:
            return f"{whole}{suffix}"
    return str(amount)
