from pathlib import Path

import pytest
from edl import SettingError
from edl.master import settings

GOOD = {"EDL_MASTER": "http://127.0.0.1:8790/", "EDL_TOKEN": "secret-1", "EDL_TRAINER": "trainer-3"}


def test_the_environment_says_it_all(tmp_path: Path) -> None:
    """The token may be in a file, with a line end; nothing shows it."""
    (tmp_path / "token").write_text("secret-2\n")
    variables = {
        "EDL_TOKEN_FILE": str(tmp_path / "token"),
        "EDL_JOB": "digits",
        "EDL_GRACE_S": "0.5",
    }
    loaded = settings.load({**GOOD, **variables})

    assert loaded.master == "http://127.0.0.1:8790"
    assert loaded.token.endswith("-2")
    assert (loaded.trainer, loaded.job) == ("trainer-3", "digits")
    assert (loaded.grace_s, loaded.patience_s) == (0.5, settings.PATIENCE_S)
    assert "secret" not in repr(loaded)


def test_a_trainer_without_a_name_gets_one_of_its_own() -> None:
    """Host and process make it."""
    assert settings.load({**GOOD, "EDL_TRAINER": ""}).trainer.rpartition("-")[2].isdigit()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"EDL_MASTER": ""}, "EDL_MASTER is not set: start this program with `edl run`"),
        ({"EDL_MASTER": "127.0.0.1:8790"}, "EDL_MASTER is '127.0.0.1:8790': write http"),
        ({"EDL_MASTER": "http://host:port"}, "EDL_MASTER is"),
        ({"EDL_MASTER": "ftp://host"}, "EDL_MASTER is"),
        ({"EDL_TOKEN": " "}, "EDL_TOKEN is empty"),
        ({"EDL_TOKEN": "a b"}, "EDL_TOKEN holds characters"),
        ({"EDL_TOKEN_FILE": "/no/such/file"}, "EDL_TOKEN_FILE '/no/such/file' cannot be read: No"),
        ({"EDL_TRAINER": "trainer 3"}, "EDL_TRAINER is 'trainer 3'"),
        ({"EDL_GRACE_S": "soon"}, "EDL_GRACE_S is 'soon'"),
        ({"EDL_PATIENCE_S": "0"}, "EDL_PATIENCE_S is '0'"),
        ({"EDL_PATIENCE_S": "inf"}, "EDL_PATIENCE_S is 'inf'"),
    ],
)
def test_what_cannot_be_used_is_named(wrong: dict[str, str], text: str) -> None:
    """One line with the variable's name, and never its token."""
    with pytest.raises(SettingError) as caught:
        settings.load({**GOOD, **wrong})

    assert str(caught.value).startswith(text)
    assert "a b" not in str(caught.value)


def test_a_token_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    """Binary rubbish, or nothing."""
    for raw, text in ((b"\xff\xfe", "it is not a text file"), (b"\n", "is empty")):
        (tmp_path / "token").write_bytes(raw)
        with pytest.raises(SettingError, match=text):
            settings.load({**GOOD, "EDL_TOKEN_FILE": str(tmp_path / "token")})
