"""Plans of which trainers to create and release, and forecasts of their effect."""
