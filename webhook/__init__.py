"""The admission webhook: gives training pods low priority, claims elastic Jobs, rejects errors."""
