"""Records of decisions and observations: events, the decision log, bursts of services."""
