import io
import json
import logging

import pytest

from runtime import logs

pytestmark = pytest.mark.usefixtures("root_logger")


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Always true."""
        return True


def test_json_lines_have_keys() -> None:
    """A line is one JSON object with time, level, room, phrase and keys."""
    stream = io.StringIO()
    logs.setup("attic", level="info", form="auto", stream=stream)

    logging.getLogger("x").info("pod changed", extra=logs.keys(pod="a/b", name="n", reason=None))

    line = json.loads(stream.getvalue())
    time = line.pop("time")
    assert time.endswith("+00:00")
    assert line == {
        "level": "info",
        "component": "attic",
        "message": "pod changed",
        "pod": "a/b",
        "name": "n",
        "reason": None,
    }


def test_plain_extras_are_keys_too() -> None:
    """Keys given to logging directly appear as well."""
    stream = io.StringIO()
    logs.setup("attic", level="info", form="json", stream=stream)

    logging.getLogger("x").info("watch broken", extra={"resource": "pods"})

    assert json.loads(stream.getvalue())["resource"] == "pods"


def test_keys_never_replace_what_every_line_has() -> None:
    """A key called message does not hide the phrase."""
    stream = io.StringIO()
    logs.setup("attic", level="info", form="json", stream=stream)

    logging.getLogger("x").info("refused", extra=logs.keys(message="other", level=9))

    line = json.loads(stream.getvalue())
    assert (line["message"], line["level"]) == ("refused", "info")


def test_exception_stays_on_one_json_line() -> None:
    """An error is a one-line text and a trace in fields of the same line."""
    stream = io.StringIO()
    logs.setup("attic", level="info", form="json", stream=stream)
    try:
        int("first\nsecond")
    except ValueError:
        logging.getLogger("x").exception("failed")

    assert stream.getvalue().count("\n") == 1
    line = json.loads(stream.getvalue())
    assert line["error"] == "ValueError: invalid literal for int() with base 10: 'first\\nsecond'"
    assert "Traceback" in line["trace"]


def test_text_is_for_terminals() -> None:
    """On a terminal a record is one line of text, even with a line break in a value."""
    stream = Terminal()
    logs.setup("attic", level="info", form="auto", stream=stream)

    logging.getLogger("x").warning("pod changed", extra=logs.keys(pod="a/b", why="x\ny"))

    assert stream.getvalue()[8:] == " warning pod changed pod=a/b why=x y\n"


def test_text_shows_the_trace_below() -> None:
    """A person reads the trace as usual."""
    stream = io.StringIO()
    logs.setup("attic", level="info", form="text", stream=stream)
    try:
        int("wrong")
    except ValueError:
        logging.getLogger("x").exception("failed")

    assert (
        stream.getvalue().splitlines()[-1]
        == "  ValueError: invalid literal for int() with base 10: 'wrong'"
    )


def test_level_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines below the level are left out; setting up twice does not log twice, on stderr."""
    logs.setup("attic", level="debug", form="json")
    logs.setup("attic", level="warning", form="json")

    logging.getLogger("x").info("quiet")
    logging.getLogger("x").warning("loud")

    assert len(capsys.readouterr().err.splitlines()) == 1


def test_no_terminal_obeys_what_strangers_write() -> None:
    """Neither in a key nor in the text of an error, whose lines cannot be taken for records."""
    stream = io.StringIO()
    logs.setup("attic", level="info", form="text", stream=stream)

    error = ValueError("queue is \x1b[2J\n12:00:01 info pod changed")
    logging.getLogger("x").error(
        "refused", exc_info=error, extra=logs.keys(reason="\x1b]0;a\x07\u202eb")
    )

    line, *trace = stream.getvalue().splitlines()
    assert line.endswith("error refused reason=?]0;a??b")
    assert trace[-2:] == ["  ValueError: queue is ?[2J", "  12:00:01 info pod changed"]
    assert all(each.startswith("  ") for each in trace)


def test_no_value_keeps_a_record_out_of_the_log() -> None:
    """Bytes of strangers that are not text, and numbers that are too long, are written all the same."""
    stream = io.StringIO()
    logs.setup("attic", level="info", form="json", stream=stream)

    logging.getLogger("x").info("refused", extra=logs.keys(path="\udc80", size=2**70))

    line = json.loads(stream.getvalue())
    assert (line["path"], line["size"]) == ("\udc80", 2**70)
