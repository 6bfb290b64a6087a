import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.machine.image import ContainerSettings, Entry, write

NAME = "edl.local/test:1"


def written(target: Path, *entries: Entry) -> dict[str, bytes]:
    """What is in the archive of an image with one layer."""
    write(target, NAME, [entries], ContainerSettings(("/run",), ("A=1",), "/app"))
    with tarfile.open(target) as tar:
        return {info.name: _read(tar, info) for info in tar}


def _read(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(info)
    return stream.read() if stream else b""


def blob(archive: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """What a descriptor points to, after a look at its size and digest."""
    name, _, digest = descriptor["digest"].partition(":")
    content = archive[f"blobs/{name}/{digest}"]
    assert len(content) == descriptor["size"]
    assert hashlib.sha256(content).hexdigest() == digest
    return content


def layer(archive: dict[str, bytes]) -> dict[str, tarfile.TarInfo]:
    """The entries of its only layer, in their order."""
    index = json.loads(archive["index.json"])
    manifest = json.loads(blob(archive, index["manifests"][0]))
    with tarfile.open(fileobj=io.BytesIO(blob(archive, manifest["layers"][0]))) as tar:
        return {info.name: info for info in tar}


def test_every_part_is_found_by_its_digest(tmp_path: Path) -> None:
    """Index, manifest, configuration and layer, each with size and digest, as OCI has them."""
    archive = written(tmp_path / "image.tar", Entry("/run", b"program", mode=0o755))
    index = json.loads(archive["index.json"])
    manifest = json.loads(blob(archive, index["manifests"][0]))
    config = json.loads(blob(archive, manifest["config"]))

    assert json.loads(archive["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == NAME
    assert config["config"] == {
        "Entrypoint": ["/run"],
        "Env": ["A=1"],
        "WorkingDir": "/app",
        "User": "",
    }
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    assert config["os"] == "linux"


def test_directories_come_before_what_is_in_them(tmp_path: Path) -> None:
    """Those that nobody named are made readable for all; all belongs to root."""
    entries = layer(
        written(tmp_path / "image.tar", Entry("/a/b/c", b"1"), Entry("/a/b", mode=0o700))
    )

    assert list(entries) == ["a", "a/b", "a/b/c"]
    assert [oct(info.mode) for info in entries.values()] == ["0o755", "0o700", "0o644"]
    assert {(info.uid, info.gid) for info in entries.values()} == {(0, 0)}


def test_files_keep_their_time(tmp_path: Path) -> None:
    """Compiled Python is only believed if its source has the time it was compiled with."""
    source = tmp_path / "module.py"
    source.write_text("x = 1")
    os.utime(source, (1_000_000_000, 1_000_000_000))
    entries = layer(written(tmp_path / "image.tar", Entry("/module.py", source)))

    assert entries["module.py"].mtime == 1_000_000_000
    assert entries["module.py"].size == 5


def test_a_later_entry_replaces_an_earlier_one(tmp_path: Path) -> None:
    """So that a caller's file wins over the one that is there by itself."""
    archive = written(tmp_path / "image.tar", Entry("/a", b"old"), Entry("/a", link="/b"))
    entry = layer(archive)["a"]

    assert entry.issym()
    assert entry.linkname == "/b"


def test_the_same_files_make_the_same_image(tmp_path: Path) -> None:
    """Byte for byte, in whatever order they are named."""
    entries = (Entry("/a", b"1"), Entry("/b", b"2"))
    written(tmp_path / "one.tar", *entries)
    written(tmp_path / "two.tar", *reversed(entries))

    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_an_image_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A file that cannot be read is an error, and there is no half of an archive."""
    with pytest.raises(FileNotFoundError, match="missing"):
        written(tmp_path / "image.tar", Entry("/a", tmp_path / "missing"))

    assert list(tmp_path.iterdir()) == []
