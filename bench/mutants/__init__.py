"""Mutation testing: applies small faults to the code, which the tests must detect."""
