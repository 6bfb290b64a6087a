"""Benchmarks: how fast EDL decides on large synthetic clusters, and how that grows.

`python -m bench` runs those named in `bench.catalogue`; adding one takes a module with a `run`
and a line there. Not shipped. Values are of one process on this machine: beside heavy work they
mean little, which is why they are no tests.
"""
