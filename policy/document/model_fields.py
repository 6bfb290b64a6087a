"""What the parts of the policy document have in common: their base, and types of fields."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from policy import quantity

Weight = Annotated[int, Field(ge=1, le=1000)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Seconds = Annotated[float, Field(ge=0.0, le=86_400.0)]


def _check_amount(text: str) -> str:
    """Validates a quantity, or a share of the cluster such as "5%"; raises ValueError."""
    if text.endswith("%"):
        share = text[:-1]
        if not share.isdecimal() or int(share) > 100:  # noqa: PLR2004 - per cent
            raise ValueError(f"{text!r} is not a share; write 0% to 100%")
        return text
    if quantity.parse("memory", text) < 0:
        raise ValueError(f"{text!r} is negative")
    return text


def _check_quantity(text: str) -> str:
    if text.endswith("%"):
        raise ValueError(f"{text!r}: a quota is an amount such as 100 or 400Gi, not a share")
    return _check_amount(text)


Amount = Annotated[str, AfterValidator(_check_amount)]
Quantity = Annotated[str, AfterValidator(_check_quantity)]


class PolicyPart(BaseModel):
    """Base of all parts of the document: frozen, camelCase in YAML, without unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )


def labels_match(labels: Mapping[str, str], patterns: Mapping[str, str]) -> bool:
    """Whether every label that has a pattern is present and matches it."""
    return all(
        name in labels and fnmatchcase(labels[name], pattern) for name, pattern in patterns.items()
    )
