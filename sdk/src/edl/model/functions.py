"""The functions of a user's file: their names, signatures and what each is for.

A file has no line about distribution. `edl.model.load` runs it and checks it against this table;
`edl.model.check` does so from its text alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Function(NamedTuple):
    """One function that a file may or must have."""

    name: str
    arguments: tuple[str, ...]
    """Positional ones, as they are called."""
    gives: str
    """What it returns, in a few words."""
    required: bool

    @property
    def signature(self) -> str:
        """Such as `loss(outputs, labels)`."""
        return f"{self.name}({', '.join(self.arguments)})"


FUNCTIONS = (
    Function("model", (), "the model", required=True),
    Function("loss", ("outputs", "labels"), "the mean loss of a batch", required=True),
    Function("optimizer", ("parameters",), "the optimizer of these parameters", required=True),
    Function("feed", ("records",), "(inputs, labels) of a batch of raw records", required=False),
    Function("metrics", (), "functions of (outputs, labels) by name", required=False),
    Function(
        "predict", ("outputs",), "what `edl predict` writes, by default outputs", required=False
    ),
    Function("export", ("model", "folder"), "nothing: it writes files", required=False),
)


def missing(path: object, function: Function) -> str:
    """What to say of a file that lacks a required function."""
    return f"{path} has no function {function.signature}: define it, it returns {function.gives}"


def no_function(path: object, function: Function, found: str) -> str:
    """What to say where the name is there, but is something else."""
    return (
        f"{function.name} in {path} is {found} and no function: define {function.signature}, "
        f"it returns {function.gives}"
    )


def other_arguments(path: object, function: Function, found: str) -> str:
    """What to say of a function that cannot be called with these arguments."""
    return (
        f"{function.name}{found} in {path} cannot be called as {function.signature}: it is called "
        f"with {len(function.arguments)} arguments, and returns {function.gives}"
    )


SIGNATURES = {one.name: one.signature for one in FUNCTIONS}
