"""Errors of policy decisions.

```
PolicyError(ValueError)
├── QuantityError   an invalid resource quantity
├── DocumentError   an invalid policy document; names the field
├── JobError        annotations or a spec that contradict elasticity; names the field
└── SnapshotError   a file that is not a snapshot of the cluster
```
"""


class PolicyError(ValueError):
    """Invalid input to a decision; the message is one line with the field and a correction."""


class QuantityError(PolicyError):
    """An invalid Kubernetes resource quantity."""


class DocumentError(PolicyError):
    """An invalid policy document."""


class JobError(PolicyError):
    """A Job with annotations or a spec that contradict elasticity."""


class SnapshotError(PolicyError):
    """A file that is not a snapshot, or one of another version, cut or damaged."""
