"""Pictures of commands are what the commands print."""

from bench.terminal_pictures import PICTURES, pictures


def test_pictures_are_what_the_commands_print() -> None:
    """`make pictures` writes them; nothing in them is loaded from outside."""
    for name, svg in pictures():
        assert (PICTURES / name).read_text("utf-8") == svg, f"make pictures writes {name}"
        assert "url(http" not in svg
        assert "href" not in svg
