"""What becomes of a gradient that was computed from parameters of an older version."""

from pserver.model import Rules


def scale(rules: Rules, staleness: int) -> float | None:
    """Factor of the learning rate for a push.

    Args:
        rules: Of the job.
        staleness: Versions that were made since its parameters were pulled.

    Returns:
        None where the push is refused: its worker pulls and computes again.
    """
    if rules.max_staleness is not None and staleness > rules.max_staleness:
        return None
    return 1.0 / max(1, staleness) if rules.modulate else 1.0
