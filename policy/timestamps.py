"""Times in the format of Kubernetes. Pure."""

from datetime import UTC, datetime


def timestamp(epoch_s: float) -> str:
    """Returns a time in the format of metav1 `Time`: RFC 3339 in UTC, cut to whole seconds."""
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
