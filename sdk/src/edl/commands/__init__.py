"""What the command `edl` can do: one module for each word that may follow it."""
