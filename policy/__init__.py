"""The core: pure decisions on frozen data. Everything above asks it; it asks nobody."""
