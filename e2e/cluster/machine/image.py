"""A container image as one tar file (OCI image layout), made of files without Docker.

Used by `python_image` for images with Python, and by `fleet` for the pause image. The
archive is what `ctr images import` and `docker load` read. Layers are not compressed: they
never travel.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_OCI = "application/vnd.oci.image"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, link or empty directory of an image.

    Attributes:
        path: Absolute, in the image; its parent directories come by themselves.
        content: A file here to copy, or the content; None for a link or a directory.
        link: What a symbolic link points to.
        mode: Permissions; all belongs to root.
    """

    path: str
    content: Path | bytes | None = None
    link: str = ""
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """How a container of the image starts, unless its pod says otherwise."""

    entrypoint: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """Such as "PATH=/usr/bin"."""
    directory: str = "/"
    user: str = ""
    """Such as "65532:65532"; "" is root."""


@dataclass(frozen=True, slots=True)
class _Blob:
    kind: str
    content: Path | bytes
    digest: str
    size: int

    @property
    def descriptor(self) -> dict[str, Any]:
        return {
            "mediaType": f"{_OCI}.{self.kind}",
            "digest": f"sha256:{self.digest}",
            "size": self.size,
        }


@dataclass(slots=True)
class _Hashing(io.RawIOBase):
    """A writer that hashes the data it passes on."""

    target: io.BufferedWriter
    digest: Any = field(default_factory=hashlib.sha256)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.digest.update(data)
        return self.target.write(data)


def write(
    target: Path, name: str, layers: Sequence[Iterable[Entry]], settings: ContainerSettings
) -> Path:
    """Writes the archive, in one step; the same input gives the same image.

    Args:
        target: The tar file.
        name: With registry and tag, such as "edl.local/trainer:1".
        layers: Lowest first; a later entry of a path replaces an earlier one.
        settings: How its containers start.

    Raises:
        OSError: a file cannot be read, or the disk is full.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    drafts = [target.with_name(f"{target.name}.layer{n}") for n in range(len(layers))]
    draft = target.with_name(f"{target.name}.draft")
    try:
        blobs = [_layer(path, layer) for path, layer in zip(drafts, layers, strict=True)]
        _archive(draft, name, blobs, settings)
        draft.replace(target)
    finally:
        for path in (*drafts, draft):
            path.unlink(missing_ok=True)
    return target


def _layer(target: Path, entries: Iterable[Entry]) -> _Blob:
    """A layer's tar: sorted, so that a directory comes before what is in it."""
    chosen = {entry.path: entry for entry in entries}
    parents = {str(up) for path in chosen for up in Path(path).parents} - {"/"}
    for path in parents - set(chosen):
        chosen[path] = Entry(path, mode=0o755)
    with target.open("wb") as output:
        hashing = _Hashing(output)
        with tarfile.open(fileobj=hashing, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(chosen):
                _add(tar, chosen[path])
    digest = hashing.digest.hexdigest()
    return _Blob("layer.v1.tar", target, digest, target.stat().st_size)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path.lstrip("/"))
    info.mode = entry.mode
    if isinstance(entry.content, Path):
        with entry.content.open("rb") as source:
            stat = os.fstat(source.fileno())
            info.size, info.mtime = stat.st_size, int(stat.st_mtime)  # .pyc files depend on it
            tar.addfile(info, source)
    elif entry.content is not None:
        info.size = len(entry.content)
        tar.addfile(info, io.BytesIO(entry.content))
    else:
        info.type = tarfile.SYMTYPE if entry.link else tarfile.DIRTYPE
        info.linkname = entry.link
        tar.addfile(info)


def _archive(target: Path, name: str, layers: Sequence[_Blob], settings: ContainerSettings) -> None:
    machine = os.uname().machine
    config = _json(
        "config.v1+json",
        {
            "architecture": _ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {
                "Entrypoint": list(settings.entrypoint),
                "Env": list(settings.env),
                "WorkingDir": settings.directory,
                "User": settings.user,
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{layer.digest}" for layer in layers],
            },
        },
    )
    manifest = _json(
        "manifest.v1+json",
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": config.descriptor,
            "layers": [layer.descriptor for layer in layers],
        },
    )
    named = {**manifest.descriptor, "annotations": {"io.containerd.image.name": name}}
    index = {"schemaVersion": 2, "manifests": [named]}
    with tarfile.open(target, "w") as tar:
        _add(tar, Entry("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode()))
        _add(tar, Entry("index.json", json.dumps(index).encode()))
        for blob in {blob.digest: blob for blob in (*layers, config, manifest)}.values():
            _add(tar, Entry(f"blobs/sha256/{blob.digest}", blob.content))


def _json(kind: str, content: dict[str, Any]) -> _Blob:
    data = json.dumps(content, sort_keys=True).encode()
    return _Blob(kind, data, hashlib.sha256(data).hexdigest(), len(data))
