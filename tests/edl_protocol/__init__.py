"""Tests of what servers and SDK both use of their protocols."""
