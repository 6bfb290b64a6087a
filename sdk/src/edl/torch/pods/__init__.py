"""Pods of several processes that hold one replica together."""
