"""The page: a read-only view of the cluster for browsers, with the rights of whoever looks (docs/decisions/0061)."""
