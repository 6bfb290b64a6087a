"""Types that the modules of the master share."""

from typing import Any

Json = dict[str, Any]
"""A JSON object."""
