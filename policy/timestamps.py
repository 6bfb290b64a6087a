"""Times as texts of Kubernetes. Pure."""

from datetime import UTC, datetime


def timestamp(epoch_s: float) -> str:
    """A time as metav1 `Time` has it: RFC 3339 in UTC, without what remains of the last second."""
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
