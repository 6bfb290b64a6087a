"""Owns the pods of elastic jobs: watches, plans, creates and releases, reports."""
