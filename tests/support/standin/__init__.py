"""A stand-in for a GPU: a device of torch in the host's memory that keeps a GPU's rules (standin.cpp)."""
