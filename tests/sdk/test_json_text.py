import pytest
from edl import json_text


def test_json_is_read() -> None:
    """As `json.loads` reads it."""
    assert json_text.loads(b'{"a": [1, 2.5, null, "x"]}') == {"a": [1, 2.5, None, "x"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("1e999", "1e999 is not a number that a float holds"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "Expecting"),
    ],
)
def test_what_is_no_json_is_a_value_error(text: str, message: str) -> None:
    """Also where Python's own reader accepts it, or ends with another error."""
    with pytest.raises(ValueError, match=message):
        json_text.loads(text)
