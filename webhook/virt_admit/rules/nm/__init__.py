"""Node maintenance: what a drain would meet, and what prevents it."""
