"""Manages the pods of elastic jobs: plans, creates and evicts trainers, updates Jobs."""
