"""The page's static files, read once. They contain no data, so a browser gets them without a token."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file and its headers."""

    content: bytes
    content_type: str
    etag: str


def load(folder: Path = FOLDER) -> dict[str, Asset]:
    """Maps each path below the folder to its file; files of other kinds are left out."""
    assets = {}
    for path in sorted(folder.rglob("*")):
        content_type = _TYPES.get(path.suffix)
        if content_type is not None and path.is_file():
            content = path.read_bytes()
            etag = sha256(content).hexdigest()[:16]
            assets[path.relative_to(folder).as_posix()] = Asset(content, content_type, etag)
    return assets
