"""The core: pure decisions on frozen data. It imports no other room."""
