"""`python -m bench.sbom FILE`: the packages of EDL's image, from its lock file, as SPDX 2.3.

Source: https://spdx.github.io/spdx-spec/v2.3. The base image is not in it: its publisher describes it.
"""

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from runtime import clock
from runtime.command_line import Parser

_ROOT = Path(__file__).parents[1]
LOCK = _ROOT / "deploy" / "runtime.lock"
_DOCUMENT = "SPDXRef-DOCUMENT"
_IMAGE = "SPDXRef-Image"
_UNKNOWN = "NOASSERTION"
_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[a-z0-9,-]+\])?==(?P<version>[^\s;]+)(?: ; (?P<marker>.+?))?(?: \\)?$"
)
_HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")


def bill_of_materials(lock: str, version: str, created: datetime) -> dict[str, Any]:
    """Returns an SPDX document of the pins in a lock file, each with the hashes of files that pip accepts.

    Args:
        lock: Text of a requirements file with hashes.
        version: The image's.
        created: Aware, in UTC.
    """
    packages: list[dict[str, Any]] = []
    for line in lock.splitlines():
        pin, digest = _PIN.match(line), _HASH.search(line)
        if pin is not None:
            packages.append(_package(pin))
        elif digest is not None:
            checksum = {"algorithm": "SHA256", "checksumValue": digest["digest"]}
            packages[-1]["checksums"].append(checksum)
    contained = [_relation(_IMAGE, "CONTAINS", package["SPDXID"]) for package in packages]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": f"edl-{version}",
        "documentNamespace": f"https://edl.training/spdx/{version}-{_digest(lock)}",
        "creationInfo": {
            "created": f"{created:%Y-%m-%dT%H:%M:%SZ}",
            "creators": ["Tool: bench.sbom"],
        },
        "packages": [_described(_IMAGE, "edl", version), *packages],
        "relationships": [_relation(_DOCUMENT, "DESCRIBES", _IMAGE), *contained],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the document; always 0."""
    parser = Parser(prog="python -m bench.sbom", description="List the packages of EDL's image.")
    parser.add_argument("file", type=Path, help="JSON file to write")
    file: Path = parser.parse_args(argv).file
    file.parent.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = LOCK.read_text(encoding="utf-8")
    document = bill_of_materials(lock, project["version"], clock.now())
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


def _package(pin: re.Match[str]) -> dict[str, Any]:
    name, version = pin["name"], pin["version"]
    package = _described(f"SPDXRef-Package-{name.replace('_', '-')}", name, version)
    purl = f"pkg:pypi/{name}@{version}"
    package["checksums"] = []
    package["externalRefs"] = [
        {
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": purl,
        }
    ]
    if pin["marker"]:
        package["comment"] = f"only where {pin['marker']}"
    return package


def _described(identifier: str, name: str, version: str) -> dict[str, Any]:
    return {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": version,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
    }


def _relation(element: str, kind: str, related: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}


def _digest(lock: str) -> str:
    return hashlib.sha256(lock.encode()).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main())
