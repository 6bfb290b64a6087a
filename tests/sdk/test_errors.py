"""Which errors of reading are of the storage, and which of the data."""

import errno
import gzip
import http.client
import io
import urllib.error
import zipfile
from collections.abc import Callable

import pytest
from edl.errors import DataError, RecordError, is_transient


def _caused(cause: BaseException) -> Exception:
    """An error of a client's own, as libraries of object stores raise it."""
    error = RuntimeError("could not connect to the endpoint")
    error.__context__ = cause
    return error


def _raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the test judges it
        call()
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ESTALE, "Stale file handle"),
        OSError(errno.EIO, "Input/output error"),
        BlockingIOError(errno.EAGAIN, "try again"),
        BrokenPipeError(errno.EPIPE, "broken pipe"),
        ConnectionResetError("without a code"),
        TimeoutError("timed out"),
        http.client.RemoteDisconnected("closed without an answer"),
        urllib.error.URLError("no route"),
        urllib.error.HTTPError("http://storage", 503, "slow down", http.client.HTTPMessage(), None),
        urllib.error.HTTPError("http://storage", 429, "too many", http.client.HTTPMessage(), None),
        _caused(ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
        _caused(_caused(TimeoutError("read timed out"))),
        RecordError(3, OSError(errno.ESTALE, "Stale file handle")),
    ],
)
def test_storage_that_is_away_is_transient(error: Exception) -> None:
    """Errors of the system, of connections, of servers, and those that one of them caused."""
    if type(error) is urllib.error.URLError:
        error.__cause__ = OSError(errno.EHOSTUNREACH, "no route")

    assert is_transient(error)


class UnidentifiedImageError(OSError):
    """As Pillow's, for a file that is no image."""


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "no such file"),
        PermissionError(errno.EACCES, "forbidden"),
        OSError(errno.EINVAL, "a place before the beginning"),
        OSError(errno.ENAMETOOLONG, "a name of binary data"),
        OSError("image file is truncated (3 bytes not processed)"),
        UnidentifiedImageError("cannot identify image file"),
        _raised(lambda: gzip.GzipFile(fileobj=io.BytesIO(b"no gzip")).read()),
        _raised(lambda: zipfile.ZipFile(io.BytesIO(b"no archive"))),
        urllib.error.HTTPError("http://storage", 404, "missing", http.client.HTTPMessage(), None),
        EOFError("cut short"),
        ValueError("torn"),
        _caused(FileNotFoundError(errno.ENOENT, "no such file")),
        RecordError(3, "its checksum is wrong"),
        DataError("no such column"),
    ],
)
def test_damaged_data_and_mistakes_are_not_transient(error: Exception) -> None:
    """Readers of images, archives and tables raise an OSError without a code for damaged data."""
    assert not is_transient(error)


def test_a_cause_that_a_program_hides_does_not_count() -> None:
    """`raise ... from None` says that the cause explains nothing."""
    error = _caused(TimeoutError("a cache"))
    error.__suppress_context__ = True

    assert not is_transient(error)


def test_a_circle_of_causes_ends() -> None:
    """A program may build one."""
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    assert not is_transient(first)
