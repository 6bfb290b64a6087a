"""Crowds in their first round."""

from tests.master.crowd import STEP_S, Crowd

SLACK_S = 2 * STEP_S + 1e-6


def trained(*trainers: str, **settings: float) -> Crowd:
    """A crowd whose first round has formed."""
    crowd = Crowd(**settings)
    crowd.arrive(*trainers)
    crowd.run(0.5)
    assert crowd.master.round.formed
    assert crowd.names == list(trainers)
    return crowd
