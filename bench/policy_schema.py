"""`python -m bench.policy_schema`: writes deploy/policy.schema.json, the policy's schema for editors.

What an editor marks as wrong, admission refuses. It also refuses what no schema says, such as times
of an unknown zone.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import written_page
from policy.document.model import VERSION, Policy

FILE = Path(__file__).parents[1] / "deploy" / "policy.schema.json"
_NUMBERS_PASS = ["string", "number"]
"""`cpu: 400` is read as `cpu: "400"`."""


def schema() -> dict[str, Any]:
    """Returns the schema of a policy document, JSON Schema 2020-12."""
    generated = Policy.model_json_schema(by_alias=True)
    generated.pop("title")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{VERSION}/policy.schema.json",
        "title": "EDL policy",
        **_readable(generated),
    }


def _readable(value: Any) -> Any:
    """Removes pydantic's titles, which repeat names, and allows numbers for texts, like the policy."""
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {
        name: _readable(item)
        for name, item in value.items()
        if not (name == "title" and isinstance(item, str))
    }
    is_free_text = fields.get("type") == "string" and not {"enum", "const"} & fields.keys()
    return {**fields, "type": _NUMBERS_PASS} if is_free_text else fields


def text() -> str:
    """Returns the file's content."""
    return json.dumps(schema(), indent=2, sort_keys=False) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the file.

    Returns:
        0.
    """
    return written_page.write("bench.policy_schema", __doc__, FILE, text, argv)


if __name__ == "__main__":
    sys.exit(main())
