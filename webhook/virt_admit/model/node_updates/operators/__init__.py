"""Operators that hold an update: what they refuse, and what the Operator Lifecycle Manager keeps of a failure."""
