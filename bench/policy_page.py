"""`python -m bench.policy_page`: writes docs/policy-fields.md from the model of the policy."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import policy_schema, written_page
from policy.document import parser as document

PAGE = Path(__file__).parents[1] / "docs" / "policy-fields.md"
_INTRODUCTION = """# Fields of the policy

`make reference` writes this page from the code; do not edit it. [policy.md](policy.md) says what the fields do together, and
`deploy/policy.schema.json` is the same for editors. `[]` marks a list, `{}` a mapping.

| Field | Values | Default | Meaning |
|---|---|---|---|
"""
_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
}


def page() -> str:
    """Returns the text of the page: a row for each field, in the order of the model."""
    schema = policy_schema.schema()
    defaults = document.parse("").model_dump(mode="json", by_alias=True)
    rows = (" | ".join(cells) for cells in _rows(schema, schema["$defs"], "", defaults))
    return _INTRODUCTION + "".join(f"| {row} |\n" for row in rows)


def _rows(
    schema: Mapping[str, Any], known: Mapping[str, Any], path: str, defaults: object
) -> Iterator[tuple[str, ...]]:
    """The cells of each field below `path`.

    Args:
        schema: Of an object.
        known: Definitions that it refers to.
        path: Its field, with a dot behind; "" for the document.
        defaults: The object by default; nothing for those of a list, which have none.
    """
    for name, field in schema.get("properties", {}).items():
        resolved = _resolved(field, known)
        default = defaults.get(name) if isinstance(defaults, Mapping) else resolved.get("default")
        items = _resolved(resolved.get("items", {}), known)
        text = field.get("description") or resolved.get("description") or ""
        if "properties" in resolved:
            yield f"`{path}{name}`", "", "", _cell(text)
            yield from _rows(resolved, known, f"{path}{name}.", default)
            continue
        is_required = name in schema.get("required", ())
        shown = "required" if is_required else _default(default)
        if "properties" in items:
            yield f"`{path}{name}[]`", "", shown, _cell(text or items.get("description", ""))
            yield from _rows(items, known, f"{path}{name}[].", None)
        else:
            mark = {"array": "[]", "object": "{}"}.get(str(resolved.get("type")), "")
            yield f"`{path}{name}{mark}`", _values(resolved, known), shown, _cell(text)


def _resolved(field: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the schema itself, of what it refers to; of an optional field, that of its value."""
    for choice in field.get("anyOf", ()):
        if choice.get("type") != "null":
            field = {**choice, **{key: field[key] for key in field if key != "anyOf"}}
    if "$ref" in field:
        field = {**known[field["$ref"].rpartition("/")[2]], **field}
    return field


def _values(field: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Returns the allowed values of a field."""
    if field.get("type") == "array":
        return _values(_resolved(field.get("items", {}), known), known)
    if field.get("type") == "object":
        inner = field.get("additionalProperties", {})
        return _values(_resolved(inner if isinstance(inner, Mapping) else {}, known), known)
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    kind = field.get("type")
    names = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
    limits = [text.format(_number(field[key])) for key, text in _LIMITS.items() if key in field]
    return ", ".join([names.get(str(kind), "text"), *limits])


def _default(value: object) -> str:
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"`{key}: {_number(item)}`" for key, item in value.items())
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{_number(value)}`"


def _number(value: object) -> str:
    """Returns a number as people write it: 300, not 300.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page.

    Returns:
        0.
    """
    return written_page.write("bench.policy_page", __doc__, PAGE, page, argv)


if __name__ == "__main__":
    sys.exit(main())
