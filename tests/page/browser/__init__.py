"""The page in a real Chromium, for `make page`."""
