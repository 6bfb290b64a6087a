"""How the learning rate depends on the staleness of a gradient."""

from edl_protocol.pserver import Rules


def scale(rules: Rules, staleness: int) -> float | None:
    """Factor of the learning rate for a push.

    Args:
        rules: The job's rules.
        staleness: Number of versions since the push's parameters were pulled.

    Returns:
        None if the push is refused: its worker pulls and computes again.
    """
    if rules.max_staleness is not None and staleness > rules.max_staleness:
        return None
    return 1.0 / max(1, staleness) if rules.modulate else 1.0
