"""Checks YAML before it is read: of bounded length and depth, without what makes readers slow.

PyYAML's constructors take seconds and gigabytes for some hundred bytes: aliases and merge keys multiply
what they name, and `1:1:1...` is a number to the base 60, computed in quadratic time. Pure.
"""

from collections.abc import Callable

import yaml

from policy.errors import DocumentError

LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's reader where PyYAML has it: five times as fast with the same result."""
_MAX_DEPTH = 20
_MAX_NUMBER = 100
"""Characters of a number; Python prints no integer of 4 300 digits."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_resolved: Callable[[type, str, tuple[bool, bool]], str] = yaml.resolver.Resolver().resolve


def check(text: str, subject: str, max_bytes: int, max_depth: int = _MAX_DEPTH) -> None:
    """Checks a text that `LOADER` may read then, in time linear in its length.

    Args:
        text: One or more documents.
        subject: What it is, for messages, such as "the policy".
        max_bytes: Its longest length in UTF-8.
        max_depth: How deep mappings and lists may be nested.

    Raises:
        DocumentError: it is too long or too deep, or has an anchor, an alias or a huge number.
        yaml.YAMLError: it is not YAML.
    """
    if len(encoded(text)) > max_bytes:
        raise DocumentError(f"{subject} is longer than {max_bytes} bytes")
    depth = 0
    for event in yaml.parse(text, LOADER):
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            raise DocumentError(
                f"anchors and aliases (`&{anchor[:40]}`) are not read: repeat the value"
            )
        if isinstance(event, yaml.ScalarEvent):
            _check_scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > max_depth:
            raise DocumentError(f"{subject} is nested more than {max_depth} levels deep")


def encoded(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which JSON allows, is passed on for the YAML parser to reject."""
    return text.encode(errors="surrogatepass")


def _check_scalar(event: yaml.ScalarEvent) -> None:
    if len(event.value) <= _MAX_NUMBER:
        return
    tag = event.tag or _resolved(yaml.ScalarNode, event.value, event.implicit)
    if tag in _NUMBERS:
        raise DocumentError(
            f"`{event.value[:20]}...` is a number of {len(event.value)} characters: write a shorter one, or "
            "quote it if it is a text"
        )
