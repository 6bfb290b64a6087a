"""Admission: what Jobs and pods may say, and how they are changed on creation."""
