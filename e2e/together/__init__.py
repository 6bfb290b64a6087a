"""Trainers of one model on a real node: what runs in the containers, who watches, and the picture."""
