"""Operators that hold an update: what they refuse, and what OLM keeps of a failure."""
