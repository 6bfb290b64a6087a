"""A cluster in virtual time: the policy code of the servers, with everything around it played.

A workload in, every change of every pod out, the same each time. Pure: no clock, no threads,
no network; 500 seconds of a cluster take a few seconds.
"""
