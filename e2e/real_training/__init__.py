"""Real training of one model on a real node: container programs, observer, traces and picture."""
