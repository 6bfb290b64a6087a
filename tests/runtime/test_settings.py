import logging
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field

from runtime.settings import Settings, SettingsError


class RoomSettings(Settings):
    """Settings of an invented room."""

    component: ClassVar[str] = "attic"

    size: Annotated[int, Field(ge=1, le=9)] = 3
    """How many; at most 100% of nine."""
    names: tuple[str, ...] = ()
    """Names to use."""
    file: Path | None = None
    """Where to write."""
    loud: bool = False
    """Log more."""
    color: Literal["red", "blue"] = "red"
    """Which one."""


class StrictSettings(Settings):
    """Settings with a field that must be given."""

    component: ClassVar[str] = "attic"

    cluster: str
    """Name of the cluster."""


def test_defaults_hold_when_nothing_is_given() -> None:
    """Without flags and environment every field has its default."""
    settings = RoomSettings.from_command_line("", [], {})

    assert settings == RoomSettings()
    assert settings.size == 3


def test_environment_is_read_by_room_and_field() -> None:
    """EDL_<ROOM>_<FIELD> sets a field; an empty variable counts as not given."""
    environ = {"EDL_ATTIC_SIZE": "5", "EDL_ATTIC_NAMES": "a, b,,c", "EDL_ATTIC_COLOR": ""}

    settings = RoomSettings.from_command_line("", [], environ)

    assert (settings.size, settings.names, settings.color) == (5, ("a", "b", "c"), "red")


def test_flags_win_over_the_environment() -> None:
    """A flag is closer to the person than a variable."""
    environ = {"EDL_ATTIC_SIZE": "5", "EDL_ATTIC_LOUD": "true"}

    settings = RoomSettings.from_command_line(
        "", ["--size=7", "--no-loud", "--file", "/x", "--names", "a,b"], environ
    )

    assert settings == RoomSettings(size=7, loud=False, file=Path("/x"), names=("a", "b"))


@pytest.mark.parametrize(
    ("argv", "environ", "line"),
    [
        (["--size=12"], {}, "--size is '12': Input should be less than or equal to 9"),
        ([], {"EDL_ATTIC_SIZE": "two"}, "EDL_ATTIC_SIZE is 'two': Input should be a valid integer"),
        (["--color=green"], {}, "--color is 'green': Input should be 'red' or 'blue'"),
    ],
)
def test_bad_value_is_one_line_that_names_its_source(
    argv: list[str], environ: dict[str, str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bad value ends the process with 2 and one line that names its source."""
    with pytest.raises(SystemExit) as ended:
        RoomSettings.from_command_line("", argv, environ)

    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert line in err
    assert len(err.splitlines()) == 1


def test_all_bad_values_are_named() -> None:
    """Two mistakes are reported together."""
    with pytest.raises(SettingsError, match=r"--size is .*; --color is "):
        RoomSettings.read({"size": "0", "color": "x"}, {})


def test_missing_value_is_named() -> None:
    """A field without default is asked for by its flag."""
    with pytest.raises(SettingsError, match="--cluster is required"):
        StrictSettings.read({}, {})


def test_help_shows_default_meaning_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows meaning, default and variable of every field."""
    with pytest.raises(SystemExit) as ended:
        RoomSettings.from_command_line("An attic.", ["--help"], {})

    text = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert "--size N How many; at most 100% of nine. (default: 3; env EDL_ATTIC_SIZE)" in text
    assert "--color red|blue" in text
    assert "--file PATH Where to write. (default: none; env EDL_ATTIC_FILE)" in text
    assert "--names A,B" in text
    assert "--loud, --no-loud" in text


def test_help_says_what_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    """A field without default is shown as required."""
    with pytest.raises(SystemExit):
        StrictSettings.from_command_line("", ["--help"], {})

    assert "(required; env EDL_ATTIC_CLUSTER)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("field", ["port", "port_file", "service_host"])
def test_names_that_kubernetes_sets_are_refused(field: str) -> None:
    """A Service edl-attic would set EDL_ATTIC_PORT to tcp://..., so no field may be called so."""
    with pytest.raises(TypeError, match=f"EDL_ATTIC_{field.upper()} is set by Kubernetes"):
        type(
            "Colliding",
            (Settings,),
            {
                "component": "attic",
                "__annotations__": {"component": ClassVar[str], field: int},
                field: 1,
            },
        )


def test_settings_are_frozen_and_closed() -> None:
    """Settings cannot be changed or added."""
    settings = RoomSettings()

    with pytest.raises(ValueError, match="frozen"):
        settings.size = 4
    with pytest.raises(ValueError, match="extra"):
        RoomSettings.model_validate({"sizes": 4})


def test_unknown_variables_are_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """With the nearest that exist, without values, and the component starts all the same."""
    environ = {"EDL_ATTIC_SIZ": "secret", "EDL_MASTERS": "secret", "EDL_ATTIC_SIZE": "5"}
    handlers = logging.getLogger().handlers

    RoomSettings.from_command_line("", ["--log-format=text"], environ).start_logging(environ)

    (line,) = capsys.readouterr().err.splitlines()
    logging.getLogger().handlers = handlers
    assert "warning variables ignored reason=EDL_ATTIC_SIZ does not exist" in line
    assert "(did you mean EDL_ATTIC_SIZE?); EDL_MASTERS does not exist" in line
    assert "secret" not in line
