"""Training on a real node: container program, traces, observations, services and picture."""
