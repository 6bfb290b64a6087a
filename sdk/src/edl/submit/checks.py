"""Checks the settings of a Job early, with better messages than the API server or a trainer. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from posixpath import normpath

from edl.errors import SettingError
from edl.submit.manifest import MAX_BYTES, MODEL_FOLDER, Claim

MAX_TRAINERS, MAX_WEIGHT = 10_000, 1000
"""Limits of EDL's admission, as are the limits of names below."""
_LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_LABEL_PATTERN)
_SUBDOMAIN = re.compile(rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253


def check_label(flag: str, text: str) -> str:
    """Checks the name of a Job or namespace, which must be an RFC 1123 label because pods get it as a label.

    Raises:
        SettingError: The name is invalid.
    """
    if len(text) > _LONGEST_LABEL or not _LABEL.fullmatch(text):
        raise SettingError(
            f"{flag} is {text!r:.80}: write at most {_LONGEST_LABEL} lower-case letters, digits and "
            "-, with a letter or digit at both ends, such as digits-2"
        )
    return text


def check_queue(text: str) -> str:
    """Checks the name of a queue.

    Raises:
        SettingError: The name is empty, or longer than the value of a label may be.
    """
    if not text or len(text) > _LONGEST_LABEL:
        raise SettingError(
            f"--queue is {text!r:.80}: write a name of 1 to {_LONGEST_LABEL} characters"
        )
    return text


def check_volume_claim(flag: str, text: str) -> str:
    """Checks the name of a PersistentVolumeClaim.

    Raises:
        SettingError: The name is invalid.
    """
    if not _is_claim_name(text):
        raise SettingError(f"{flag} is {text!r:.80}: write the name of a PersistentVolumeClaim")
    return text


def check_image(text: str) -> str:
    """Checks the name of an image.

    Raises:
        SettingError: The name is empty or contains spaces.
    """
    if not text or any(character.isspace() for character in text):
        raise SettingError(
            f"--image is {text!r:.80}: write an image, such as registry/team/image:tag"
        )
    return text


def parse_claim(text: str) -> Claim:
    """Parses `NAME:/path` or `NAME:/path:ro`.

    Raises:
        SettingError: The format or the path is invalid.
    """
    name, _, mount = text.partition(":")
    path, _, mode = mount.partition(":")
    is_valid = _is_claim_name(name) and mode in ("", "ro")
    if not is_valid or not path.startswith("/") or normpath(path) != path.rstrip("/"):
        raise SettingError(
            f"--claim is {text!r:.80}: write NAME:/path, or NAME:/path:ro to read only; NAME is a "
            "PersistentVolumeClaim"
        )
    return Claim(name, path.rstrip("/"), mode == "ro")


def _is_claim_name(text: str) -> bool:
    return len(text) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def check_claims(claims: Sequence[Claim]) -> Sequence[Claim]:
    """Checks that claims have different mount paths.

    Raises:
        SettingError: Two claims share a path, or a claim has the path of the model.
    """
    paths = {MODEL_FOLDER}
    for claim in claims:
        if claim.path in paths:
            raise SettingError(
                f"--claim {claim.name}:{claim.path}: that path is taken: choose another"
            )
        paths.add(claim.path)
    return claims


def check_bounds(least: int, most: int) -> None:
    """Checks the bounds of the number of trainers.

    Raises:
        SettingError: Min exceeds max.
    """
    if least > most:
        raise SettingError(f"--min is {least} and --max is {most}: min must not exceed max")


def check_absolute(flag: str, path: str | None) -> None:
    """Checks a path in containers, if the path is given.

    Raises:
        SettingError: The path is not absolute.
    """
    if path is not None and not path.startswith("/"):
        raise SettingError(
            f"{flag} is {path!r:.80}: write the path that it has in the container, beginning with / "
            "(a --claim brings a volume there)"
        )


def check_shared(flag: str, path: str | None, claims: Sequence[Claim]) -> None:
    """Checks that an output path is in a writable volume, so that it outlives the pods.

    Raises:
        SettingError: The path is not in a writable claim.
    """
    if path is None:
        return
    output_path = normpath(path)
    for claim in claims:
        if output_path == claim.path or output_path.startswith(f"{claim.path}/"):
            if claim.read_only:
                raise SettingError(
                    f"{flag} is in claim {claim.name}, which is read only: drop its :ro"
                )
            return
    raise SettingError(
        f"{flag} is {path!r:.80}, which is in no volume: files there are lost with the pod; "
        f"give --claim NAME:{output_path.rpartition('/')[0] or '/path'}"
    )


def check_files(texts: Mapping[str, str]) -> None:
    """Checks the files of a ConfigMap.

    Raises:
        SettingError: A name is not a valid key, or the files are too large.
    """
    for name in texts:
        if not _KEY.fullmatch(name) or name in (".", ".."):
            raise SettingError(
                f"{name!r:.80} cannot go into a ConfigMap: file names there are of letters, digits, "
                "- _ and ."
            )
    size = sum(len(name) + len(text.encode()) for name, text in texts.items())
    if size > MAX_BYTES:
        raise SettingError(
            f"the model's files have {size} bytes, and a ConfigMap holds {MAX_BYTES}: put large "
            "files into the image or a volume"
        )
