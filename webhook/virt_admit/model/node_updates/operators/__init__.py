"""Operators that hold an update: what they refuse, what OLM keeps of a failure, and which of them
drain nodes for devices.
"""
