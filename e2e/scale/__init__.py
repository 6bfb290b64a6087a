"""What a trainer costs on a large cluster, with EDL and without it: `python -m e2e.scale`."""
