"""The YAML that `edl submit` and `edl convert` print."""

from typing import Any

import yaml
from edl.submit import yaml_text
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

_TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8")),
    st.text("ab:#-'\"\\ \t\n\r\x85\u2028\x00~=,[]{}&*!|>%@`1.e_/", max_size=30),
    st.sampled_from(
        ["no", "Null", "1e3", "0x10", "=", "<<", "---", "12:30", "2001-01-01", ".5", ""]
    ),
)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # cores are shared
@example([{"a": "\x85&\n"}])
@given(st.lists(st.dictionaries(_TEXTS, _VALUES, min_size=1), min_size=1, max_size=3))
def test_yaml_readers_find_the_very_same_values(values: list[dict[str, Any]]) -> None:
    """Whatever the texts hold."""
    assert list(yaml.safe_load_all(yaml_text.documents(*values))) == values
