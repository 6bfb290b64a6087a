"""Admission webhook: makes training pods give way, hands elastic Jobs over, refuses what is wrong."""
