"""Training of the numpy example on a real node: container program, traces and picture."""
