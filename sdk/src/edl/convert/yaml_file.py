"""Reads one YAML document with the lines of its fields; refuses aliases, unknown tags and merge keys.

PyYAML parses the text (`pip install 'edl-sdk[yaml]'`), because a parser written for EDL would
accept other files than kubectl does.
"""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Any, BinaryIO

from edl.convert.fields import Path
from edl.errors import EdlError, SettingError

MAX_BYTES = 1 << 20
_MAX_DEPTH = 60
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_OCTAL = re.compile(r"0o[0-7]{1,20}")
_MAX_NUMBER = 100
"""Maximum number of characters in a number.

Python does not print an integer with more than 4 300 digits, and PyYAML reads `1:1:1...` in quadratic time.
"""


class YamlFile:
    """The value of a YAML document, and the line of each field."""

    def __init__(self, text: str, name: str) -> None:
        """Parses a text.

        Raises:
            EdlError: PyYAML is missing.
            SettingError: The text is not a single YAML mapping; the message names the line.
        """
        try:
            import yaml  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            raise EdlError("job files need PyYAML: pip install 'edl-sdk[yaml]'") from error
        self.lines: dict[Path, int] = {}
        self._name = name
        try:
            nodes: list[Any] = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        except (yaml.YAMLError, RecursionError) as error:
            raise SettingError(f"{name}{_place(error)} is not YAML: {_problem(error)}") from error
        nodes = [node for node in nodes if node is not None and not _is_empty(node)]
        if len(nodes) != 1:
            raise SettingError(
                f"{name} has {len(nodes)} documents: write the one of the job into a file"
            )
        self._yaml = yaml
        self._loader = yaml.SafeLoader("")
        self._seen: set[int] = set()
        value = self._value(nodes[0], ())
        if not isinstance(value, dict):
            raise SettingError(f"{name} has no fields: that is not a job file")
        self.value: dict[str, Any] = value

    def _value(self, node: Any, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if len(path) > _MAX_DEPTH:
            raise SettingError(f"{self._name} line {line}: fields are nested too deeply")
        if id(node) in self._seen:
            raise SettingError(f"{self._name} line {line}: aliases are not read: write it out")
        self._seen.add(id(node))
        if isinstance(node, self._yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, self._yaml.SequenceNode):
            return [self._value(item, (*path, str(i))) for i, item in enumerate(node.value)]
        if node.tag in _NUMBERS and len(node.value) > _MAX_NUMBER:
            raise SettingError(
                f"{self._name} line {line}: {node.value[:20]}... is a number of {len(node.value)} "
                "characters: quote it if it is a text"
            )
        if node.tag in _NUMBERS and ":" in node.value:
            return node.value  # only PyYAML reads 1:4 in base 60, as 64; kubectl reads a text
        if not node.style and _OCTAL.fullmatch(str(node.value)):
            return int(node.value, 8)  # PyYAML reads it as a text, kubectl as a number
        try:
            value = self._loader.construct_object(node)
        except (self._yaml.YAMLError, ValueError) as error:
            raise SettingError(
                f"{self._name} line {line}: {_problem(error)}: write a text, a number, true or false"
            ) from error
        if value is None or isinstance(value, (str, int, float)):
            return value
        return node.value  # a date, for example, is kept as a text

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            name = key_node.value
            if not isinstance(name, str) or key_node.tag == "tag:yaml.org,2002:merge":
                raise SettingError(f"{self._name} line {line}: a field's name must be a text")
            if name in fields:
                raise SettingError(f"{self._name} line {line}: {name!r:.60} stands there twice")
            self.lines[(*path, name)] = line
            fields[name] = self._value(value_node, (*path, name))
        return fields


def read(path: FilePath) -> str:
    """Reads a job file.

    Raises:
        SettingError: The file cannot be read, is not text, or is empty or too large.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, str(path))
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {_problem(error)}") from error


def read_stream(stream: BinaryIO, name: str) -> str:
    """Reads a job file from a stream, such as standard input; `name` is for messages.

    Raises:
        SettingError: The content is not text, or is empty or too large.
        OSError: The stream cannot be read.
    """
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SettingError(f"{name} has more than {MAX_BYTES} bytes: that is not a job file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SettingError(f"{name} is not text in UTF-8: {_problem(error)}") from error
    if not text.strip():
        raise SettingError(f"{name} is empty")
    return text


def _is_empty(node: Any) -> bool:
    """Returns whether a document is empty, such as the one after a `---` at the end of a file."""
    return node.id == "scalar" and node.tag == "tag:yaml.org,2002:null" and not node.value


def _place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f" line {mark.line + 1}"


def _problem(error: Exception) -> str:
    text = getattr(error, "problem", None) or getattr(error, "strerror", None) or str(error)
    return " ".join(str(text).split())[:200] or type(error).__name__
