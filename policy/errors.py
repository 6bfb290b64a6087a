"""Errors of the core.

```
PolicyError(ValueError)
├── QuantityError   a resource quantity that cannot be read
├── DocumentError   a policy document that is refused, naming the field
└── JobError        annotations or a spec that contradict elasticity, naming the field
```
"""


class PolicyError(ValueError):
    """Bad input to a decision; the text is one line that names the field and the way out."""


class QuantityError(PolicyError):
    """A Kubernetes resource quantity that cannot be read."""


class DocumentError(PolicyError):
    """A policy document that is refused."""


class JobError(PolicyError):
    """A Job that cannot be elastic as it is written."""
