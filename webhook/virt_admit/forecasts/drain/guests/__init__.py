"""Guests that stand still although their VMI is Running,
and the storage that keeps them from going on.
"""
