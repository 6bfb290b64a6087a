"""Reads references to container images, and judges whether nodes can have one. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from admin.findings import Finding, error, note, ok, warning

_SUBJECT = "image"
_DEFAULT_HOST = "docker.io"
_LIBRARY = "library/"
_REFERENCE = re.compile(
    r"(?P<name>[a-z0-9]+(?:(?:[._]|__|-+|/)[a-z0-9]+)*)"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_HOST = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d+)?", re.ASCII)
_LOOPBACK = re.compile(r"(localhost|127\.[\d.]+|\[::1\])(:\d+)?")


class ImageError(ValueError):
    """A text is not a reference to an image; the message is one line."""


@dataclass(frozen=True, slots=True)
class ImageReference:
    """A reference as Docker, containerd and kubelets read it (distribution/reference).

    Attributes:
        host: Of the registry, with a port where it has one.
        repository: The path there.
        tag: "" where only the digest is given.
        digest: Such as "sha256:...", or "".
    """

    host: str
    repository: str
    tag: str
    digest: str

    @property
    def names(self) -> frozenset[str]:
        """How a node may name it (`status.images` of nodes): by tag or by digest."""
        name = f"{self.host}/{self.repository}"
        names = {f"{name}@{self.digest}"} if self.digest else {f"{name}:{self.tag}"}
        return frozenset(names)

    @property
    def is_local(self) -> bool:
        """Whether its registry is on this machine, where registries speak HTTP."""
        return _LOOPBACK.fullmatch(self.host) is not None

    def __str__(self) -> str:
        """Whole, with the parts that the author left out."""
        end = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.host}/{self.repository}{end}"


class Presence(StrEnum):
    """Whether an image exists, as far as a registry tells."""

    FOUND = "found"
    MISSING = "missing"
    HIDDEN = "hidden"
    """It shows it to nobody without credentials, or has none of that name."""
    UNKNOWN = "unknown"
    """It could not be asked."""


@dataclass(frozen=True, slots=True)
class RegistryAnswer:
    """The answer of a registry, or the reason why there is none."""

    presence: Presence
    detail: str = ""


def parse(text: str) -> ImageReference:
    """The reference in `text`.

    Raises:
        ImageError: it is none.
    """
    first, slash, path = text.partition("/")
    has_host = bool(slash) and (first == "localhost" or any(mark in first for mark in ".:["))
    host, name = (first, path) if has_host else (_DEFAULT_HOST, text)
    match = _REFERENCE.fullmatch(name)
    if match is None or not _HOST.fullmatch(host):
        raise ImageError(
            f"{text[:80]!r} is not an image reference: write, for example, registry.example/edl:0.1.0"
        )
    repository = match["name"]
    if host == _DEFAULT_HOST and "/" not in repository:
        repository = _LIBRARY + repository
    digest = match["digest"] or ""
    return ImageReference(host, repository, match["tag"] or ("" if digest else "latest"), digest)


def nodes_with(reference: ImageReference, nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the nodes that say they have the image; a kubelet lists its 50 largest."""
    return [
        str(node["metadata"]["name"])
        for node in nodes
        if any(
            reference.names & set(image.get("names") or ())
            for image in node.get("status", {}).get("images") or ()
        )
    ]


def judge(reference: ImageReference, present: int, nodes: int, answer: RegistryAnswer) -> Finding:
    """Whether EDL's pods will have their image.

    Args:
        reference: The image.
        present: How many nodes have it.
        nodes: How many there are.
        answer: Of the registry.
    """
    shown = f"{reference}: {present} of {nodes} nodes have it"
    if nodes and present == nodes:
        return ok(_SUBJECT, shown)
    if answer.presence is Presence.FOUND:
        return ok(_SUBJECT, f"{reference} is in its registry")
    if answer.presence is Presence.MISSING:
        text = (
            f"{shown}, and {reference.host} does not have it: push the image, or correct its name"
        )
        return error(_SUBJECT, text)
    if answer.presence is Presence.HIDDEN:
        text = f"{shown}; {reference.host} requires credentials or does not have it: "
        return warning(_SUBJECT, text + "make sure that nodes can pull it (imagePullSecrets)")
    text = f"{shown}; {reference.host} is not reachable from here ({answer.detail})"
    return warning(_SUBJECT, f"{text}: make sure that nodes reach it")


def not_named() -> Finding:
    """Says that the image was not checked, because the admin named none."""
    return note(_SUBJECT, "not checked: set --image")
