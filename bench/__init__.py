"""Benchmarks: how fast EDL decides on large synthetic clusters, and how that grows.

`python -m bench` runs the benchmarks of `bench.catalogue`; a new one needs a module with a `run`
and a line there. Not shipped. Results hold for one process on one machine and mean little under
other load, so they are not tests.
"""
