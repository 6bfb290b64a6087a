"""Admission: checks of Jobs, and changes to pods and Jobs as they are created."""
