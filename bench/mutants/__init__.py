"""Mutation testing: small faults are put into the rooms' code, and their tests have to notice."""
