"""Creates, annotates and evicts trainer pods."""
