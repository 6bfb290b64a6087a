"""What can go wrong with the local cluster."""


class ClusterError(RuntimeError):
    """The cluster cannot be built, started or reached; one line that names the way out."""
