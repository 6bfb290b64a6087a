"""The cost of a trainer on a large cluster, with and without EDL: `python -m e2e.scale`."""
