"""Real training on a real node: what runs in the containers, and the picture of a run."""
