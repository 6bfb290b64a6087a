"""The decorator `override` for overriding methods.

Type checkers see the decorator from typing_extensions, which is not needed at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import override
else:
    Method = TypeVar("Method")

    def override(method: Method) -> Method:
        """Returns the method unchanged; `typing.override` needs Python 3.12."""
        return method


__all__ = ["override"]
