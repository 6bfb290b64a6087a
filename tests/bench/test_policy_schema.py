"""The policy's schema for editors."""

from pathlib import Path

from bench import policy_schema


def test_the_file_is_that_of_the_model() -> None:
    """Where this fails: `make policy-schema`."""
    assert policy_schema.FILE.read_text("utf-8") == policy_schema.text()


def test_the_command_writes_the_file(tmp_path: Path) -> None:
    """Where it is told to."""
    path = tmp_path / "schema.json"

    assert policy_schema.main(["--output", str(path)]) == 0
    assert path.read_text("utf-8") == policy_schema.text()


def test_a_field_that_does_not_exist_is_marked() -> None:
    """In the document and in each of its parts."""
    schema = policy_schema.schema()
    parts = [part for part in schema["$defs"].values() if part.get("type") == "object"]

    assert schema["additionalProperties"] is False
    assert all(part["additionalProperties"] is False for part in parts)


def test_names_are_those_of_the_document() -> None:
    """In camel case; amounts may be numbers, as in the document."""
    schema = policy_schema.schema()
    quota = schema["$defs"]["Quota"]["properties"]

    assert {"nodePools", "apiVersion"} <= schema["properties"].keys()
    assert quota["requests"]["additionalProperties"]["type"] == ["string", "number"]
