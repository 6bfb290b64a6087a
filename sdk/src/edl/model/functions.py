"""The names, signatures and results of the functions in a user's file.

`edl.model.load` runs a file and checks it against this table; `edl.model.check` checks the source
without running it.
"""

from __future__ import annotations

from typing import NamedTuple


class UserFunction(NamedTuple):
    """A function that a file may or must define."""

    name: str
    arguments: tuple[str, ...]
    """The positional arguments of the call."""
    returns: str
    """Description of the result, for error messages."""
    required: bool

    @property
    def signature(self) -> str:
        """The call as text, such as `loss(outputs, labels)`."""
        return f"{self.name}({', '.join(self.arguments)})"


FUNCTIONS = (
    UserFunction("model", (), "the model", required=True),
    UserFunction("loss", ("outputs", "labels"), "the mean loss of a batch", required=True),
    UserFunction("optimizer", ("parameters",), "the optimizer of these parameters", required=True),
    UserFunction(
        "feed", ("records",), "(inputs, labels) of a batch of raw records", required=False
    ),
    UserFunction(
        "table_options", (), "options of embedding tables by name, for --async", required=False
    ),
    UserFunction("metrics", (), "functions of (outputs, labels) by name", required=False),
    UserFunction("predict", ("outputs",), "the arrays for `edl predict` to write", required=False),
    UserFunction("export", ("model", "folder"), "nothing, but writes files", required=False),
)


def missing_message(path: object, function: UserFunction) -> str:
    """Returns the error message for a file that lacks a required function."""
    return f"{path} has no function {function.signature}: define it to return {function.returns}"


def not_callable_message(path: object, function: UserFunction, kind: str) -> str:
    """Returns the error message for a name that is not a function."""
    return (
        f"{function.name} in {path} is {kind}, not a function: define {function.signature} "
        f"to return {function.returns}"
    )


def signature_message(path: object, function: UserFunction, signature: str) -> str:
    """Returns the error message for a function with an incompatible signature."""
    return (
        f"{function.name}{signature} in {path} cannot be called as {function.signature}: it must take "
        f"{len(function.arguments)} positional arguments and return {function.returns}"
    )


SIGNATURES = {function.name: function.signature for function in FUNCTIONS}
