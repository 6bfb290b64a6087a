"""A read-only view of the cluster for browsers, with the visitor's permissions (docs/decisions/0061)."""
