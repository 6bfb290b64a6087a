from runtime.connection_table import ConnectionAdmission, ConnectionTable


def filled(max_connections: int, max_per_address: int, *addresses: str) -> ConnectionTable[str]:
    """A table with connections "0", "1", ... of these addresses."""
    table: ConnectionTable[str] = ConnectionTable(max_connections, max_per_address)
    for number, address in enumerate(addresses):
        assert table.add(str(number), address) == ConnectionAdmission(admitted=True)
    return table


def test_a_full_server_admits_a_new_caller_in_place_of_the_one_that_waits_longest() -> None:
    """Silent connections do not keep anybody out."""
    table = filled(3, 3, "a", "a", "a")

    assert table.add("new", "b") == ConnectionAdmission(admitted=True, dropped="0")
    assert table.add("newer", "b") == ConnectionAdmission(admitted=True, dropped="1")
    assert len(table) == 3


def test_the_address_with_the_most_connections_pays() -> None:
    """However old those of another address are."""
    table = filled(4, 4, "b", "a", "a", "a")

    assert table.add("new", "c").dropped == "1"


def test_an_address_with_too_many_pays_itself() -> None:
    """Although the server has room."""
    table = filled(10, 2, "b", "a", "a")

    assert table.add("new", "a") == ConnectionAdmission(admitted=True, dropped="1")
    assert table.add("new", "b") == ConnectionAdmission(admitted=True)


def test_a_connection_that_is_being_answered_is_not_dropped() -> None:
    """Where all are, the new one is refused, by its address or in total."""
    table = filled(2, 1, "a", "b")
    table.begin_answer("0")
    table.begin_answer("1")

    assert table.add("new", "a") == ConnectionAdmission(admitted=False)
    assert table.add("new", "c") == ConnectionAdmission(admitted=False)
    assert len(table) == 2

    table.end_answer("1")

    assert table.add("new", "c") == ConnectionAdmission(admitted=True, dropped="1")


def test_who_has_sent_a_request_before_is_dropped_last() -> None:
    """API servers keep connections; strangers only open them."""
    table = filled(3, 3, "a", "a", "a")
    table.begin_answer("0")
    table.end_answer("0")

    assert [table.add(f"new {number}", "a").dropped for number in range(3)] == ["1", "2", "new 0"]


def test_connections_that_ended_are_forgotten() -> None:
    """Late notes about one have no effect."""
    table = filled(1, 1, "a")
    table.remove("0")
    table.remove("0")
    table.begin_answer("0")
    table.end_answer("0")

    assert len(table) == 0
    assert table.add("new", "a") == ConnectionAdmission(admitted=True)
    table.end_answer("new")
    assert table.add("newer", "a") == ConnectionAdmission(admitted=True, dropped="new")
