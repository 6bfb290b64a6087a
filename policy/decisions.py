"""Recorded decisions: a stable code with figures, and the sentence that people read.

Only this module formats sentences. It uses the code, the figures and the templates in
`policy.explanations`, so that a sentence cannot contradict its figures (docs/decisions/0005).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from string import Formatter

from policy import quantity
from policy.cluster.snapshot import Resources
from policy.explanations import EXPLANATIONS
from policy.reasons import Reason
from policy.timestamps import timestamp

Figure = int | float | str | Resources
"""A count, a share, a name, or amounts in the units of `policy.quantity`."""
Figures = Mapping[str, Figure]
NONE: Figures = {}


@dataclass(frozen=True, slots=True)
class Decision:
    """One recorded decision."""

    about: str
    """Kind and name of the object: `job`, `pod` or `node`, a space, and its namespace/name or node name."""
    code: Reason
    figures: Figures = field(default_factory=dict)
    at_s: float = 0.0
    """Seconds since the epoch."""

    @property
    def text(self) -> str:
        """The sentence of the decision."""
        return sentence(self.code, self.figures)

    def to_json(self) -> dict[str, object]:
        """Returns the decision as a JSON object, with amounts as Kubernetes quantities."""
        figures = {name: plain(figure) for name, figure in self.figures.items()}
        return {
            "about": self.about,
            "code": str(self.code),
            "text": self.text,
            "figures": figures,
            "at": self.at_s,
        }


def sentence(code: Reason, figures: Figures) -> str:
    """Returns the sentence of a decision; "" if the code has none."""
    texts = {name: _Text(_format(figure)) for name, figure in figures.items()}
    for template in EXPLANATIONS[code].sentences:
        if fields(template) <= texts.keys():
            return template.format_map(texts)
    return ""


def time(epoch_s: float) -> str:
    """Returns a point in time as a figure; the remaining seconds would be another figure in every plan."""
    return timestamp(ceil(epoch_s))


def fields(template: str) -> frozenset[str]:
    """Returns the names of the figures in a template."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


def plain(figure: Figure) -> object:
    """Returns a figure as a JSON value, with amounts as Kubernetes quantities."""
    if isinstance(figure, Mapping):
        return {name: quantity.show(name, amount) for name, amount in figure.items()}
    return round(figure, 4) if isinstance(figure, float) else figure


class _Text(str):
    """A figure in a sentence; its format spec is the counted noun: `{missing:trainer}` is "2 trainers"."""

    __slots__ = ()

    def __format__(self, noun: str) -> str:
        """Returns the figure and the noun, which is in the plural unless the figure is 1."""
        return f"{self!s} {noun}{'' if self == '1' else 's'}" if noun else str(self)


def _format(figure: Figure) -> str:
    if isinstance(figure, Mapping):
        counted = {name: amount for name, amount in figure.items() if name != "pods"}
        if not any(counted.values()):
            return "nothing"
        texts = [f"{quantity.show(name, amount)} {name}" for name, amount in counted.items()]
        return ", ".join(texts)
    return f"{figure:.4g}" if isinstance(figure, float) else str(figure)
