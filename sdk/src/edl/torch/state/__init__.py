"""The state of a model and its optimizer: copies, parts, checkpoints."""
