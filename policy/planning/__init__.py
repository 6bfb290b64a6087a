"""The plan: which trainers to create and release, and forecasts of it."""
