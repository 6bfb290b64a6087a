from runtime.printable import printable


def test_what_strangers_write_does_nothing_to_the_terminal() -> None:
    """Escape sequences, line breaks, directions of writing, and halves of characters."""
    assert printable("a\x1b[2Jb\nc\u202ed\ud800\x9be") == "a?[2Jb c?d??e"
