"""Refuses what the API server, or a trainer on the cluster, would refuse later and less clearly. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from posixpath import normpath

from edl.errors import SettingError
from edl.submit.manifest import MODEL_FOLDER, MOST_BYTES, Claim

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}", re.ASCII)
_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253
MOST_SERVERS = 64


def label(flag: str, text: str) -> str:
    """A name as an RFC 1123 label: of Jobs (it becomes a label of their pods) and namespaces.

    Raises:
        SettingError: It is none.
    """
    if len(text) > _LONGEST_LABEL or not _LABEL.fullmatch(text):
        raise SettingError(
            f"{flag} is {text!r:.80}: write at most {_LONGEST_LABEL} lower-case letters, digits and "
            "-, with a letter or digit at both ends, such as digits-2"
        )
    return text


def queue(text: str) -> str:
    """The name of a queue.

    Raises:
        SettingError: It is longer than a label's value may be.
    """
    if not text or len(text) > _LONGEST_LABEL:
        raise SettingError(
            f"--queue is {text!r:.80}: write a name of 1 to {_LONGEST_LABEL} characters"
        )
    return text


def volume_claim(flag: str, text: str) -> str:
    """The name of a PersistentVolumeClaim.

    Raises:
        SettingError: It is none.
    """
    if len(text) > _LONGEST_SUBDOMAIN or not _SUBDOMAIN.fullmatch(text):
        raise SettingError(f"{flag} is {text!r:.80}: write the name of a PersistentVolumeClaim")
    return text


def image(text: str) -> str:
    """An image's name.

    Raises:
        SettingError: It is empty, or holds spaces.
    """
    if not text or any(each.isspace() for each in text):
        raise SettingError(
            f"--image is {text!r:.80}: write an image, such as registry/team/image:tag"
        )
    return text


def claim(text: str) -> Claim:
    """Reads `NAME:/path` or `NAME:/path:ro`.

    Raises:
        SettingError: It is written otherwise, or the path cannot be one.
    """
    name, _, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    fine = len(name) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(name) and mode in ("", "ro")
    if not fine or not path.startswith("/") or normpath(path) != path.rstrip("/"):
        raise SettingError(
            f"--claim is {text!r:.80}: write NAME:/path, or NAME:/path:ro to read only; NAME is a "
            "PersistentVolumeClaim"
        )
    return Claim(name, path.rstrip("/"), mode == "ro")


def claims(found: Sequence[Claim]) -> Sequence[Claim]:
    """Claims whose places do not collide.

    Raises:
        SettingError: Two have the same, or one is the model's.
    """
    taken = {MODEL_FOLDER}
    for one in found:
        if one.path in taken:
            raise SettingError(f"--claim {one.name}:{one.path}: that path is taken: choose another")
        taken.add(one.path)
    return found


def bounds(least: int, most: int) -> None:
    """Min and max.

    Raises:
        SettingError: They are the wrong way round.
    """
    if least > most:
        raise SettingError(f"--min is {least} and --max is {most}: min must not exceed max")


def absolute(flag: str, path: str | None) -> None:
    """A path of containers, if one is given.

    Raises:
        SettingError: It is not absolute.
    """
    if path is not None and not path.startswith("/"):
        raise SettingError(
            f"{flag} is {path!r:.80}: write the path that it has in the container, beginning with / "
            "(a --claim brings a volume there)"
        )


def shared(flag: str, path: str | None, found: Sequence[Claim]) -> None:
    """What trainers write must outlive them.

    Raises:
        SettingError: It is in no claim that can be written.
    """
    if path is None:
        return
    home = normpath(path)
    for one in found:
        if home == one.path or home.startswith(f"{one.path}/"):
            if one.read_only:
                raise SettingError(
                    f"{flag} is in claim {one.name}, which is read only: drop its :ro"
                )
            return
    raise SettingError(
        f"{flag} is {path!r:.80}, which is in no volume: what is written there ends with its pod; "
        f"give --claim NAME:{home.rpartition('/')[0] or '/path'}"
    )


def files(found: Mapping[str, str]) -> None:
    """The files of a ConfigMap.

    Raises:
        SettingError: A name cannot be a key of it, or it would be too large.
    """
    for name in found:
        if not _KEY.fullmatch(name) or name in (".", ".."):
            raise SettingError(
                f"{name!r:.80} cannot go into a ConfigMap: file names there are of letters, digits, "
                "- _ and ."
            )
    size = sum(len(name) + len(text.encode()) for name, text in found.items())
    if size > MOST_BYTES:
        raise SettingError(
            f"the model's files have {size} bytes, and a ConfigMap holds {MOST_BYTES}: put large "
            "files into the image or a volume"
        )
