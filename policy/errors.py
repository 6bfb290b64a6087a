"""Errors of policy decisions.

```
PolicyError(ValueError)
├── QuantityError   an invalid resource quantity
├── DocumentError   an invalid policy document; names the field
├── JobError        annotations or a spec that an elastic Job cannot have; names the field
└── SnapshotError   an invalid snapshot of a cluster
```
"""


class PolicyError(ValueError):
    """Invalid input to a decision; the message is one line with the field and a correction."""


class QuantityError(PolicyError):
    """An invalid Kubernetes resource quantity."""


class DocumentError(PolicyError):
    """An invalid policy document."""


class JobError(PolicyError):
    """Annotations or a spec that an elastic Job cannot have."""


class SnapshotError(PolicyError):
    """A file that is not a snapshot, has another version, or is truncated or damaged."""
