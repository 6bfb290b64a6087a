"""Why a class name stands in several files: read from the glossary's table of that."""

import re

_HEADING = "## Names that stand twice"


def class_reasons(glossary: str) -> dict[str, str]:
    """Reasons by class name, from the table under the heading; empty where there is none.

    Args:
        glossary: Text of docs/glossary.md.
    """
    section = glossary.partition(_HEADING)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|$", section, re.MULTILINE)
    return {name: reason for name, reason in rows if reason.strip()}
