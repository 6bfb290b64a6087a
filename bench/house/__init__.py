"""How the tree measures up as a code base: sizes, types, layers, names, prose."""
