"""Rows that readers follow at their own pace."""

from hypothesis import given
from hypothesis import strategies as st

from page.table import Row, RowTable

CHANGES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 3))), max_size=40
)


@given(CHANGES, st.integers(0, 40), st.integers(0, 6))
def test_a_reader_has_what_there_is(
    changes: list[tuple[str, int | None]], position: int, kept: int
) -> None:
    """Whenever it looked last: what it had then, with the delta, is the table; or it begins again."""
    table = RowTable(kept)
    had: dict[str, bytes] = {}
    for version, (key, value) in enumerate(changes, start=1):
        if value is None:
            table.drop(key, version)
        else:
            table.put(key, Row(version, "ml", b"%d" % value))
        if version == position:
            had = {name: row.text for name, row in table.all()}
    delta = table.since(min(position, len(changes)))
    if position > len(changes):
        had = {name: row.text for name, row in table.all()}
    if delta is None:
        had, rows = {}, table.all()
    else:
        had = {name: text for name, text in had.items() if (name, "ml") not in delta.dropped}
        rows = delta.rows

    assert had | {name: row.text for name, row in rows} == {
        name: row.text for name, row in table.all()
    }


def test_a_row_that_says_the_same_is_no_change() -> None:
    """It keeps its version; another text for those who see more is a change."""
    table = RowTable()

    assert table.put("a", Row(1, "ml", b"1", b"2"))
    assert not table.put("a", Row(2, "ml", b"1", b"2"))
    assert table.put("a", Row(3, "ml", b"1", b"3"))
    assert table.since(3) is not None
    assert len(table) == 1


def test_a_cleared_table_begins_again() -> None:
    """For everybody who read it before; a reader from then on gets deltas."""
    table = RowTable()
    table.put("a", Row(1, "ml", b"1"))
    table.clear(2)

    assert table.since(1) is None
    delta = table.since(2)
    assert delta is not None
    assert (delta.rows, delta.dropped) == ([], [])


def test_the_oldest_rows_go_first() -> None:
    """Those that have not changed for longest."""
    table = RowTable()
    for version, key in enumerate("abca", start=1):
        table.put(key, Row(version, "ml", b"%d" % version))
    table.drop_oldest(2, 5)

    assert [key for key, _ in table.all()] == ["c", "a"]
    assert table.get("b") is None
