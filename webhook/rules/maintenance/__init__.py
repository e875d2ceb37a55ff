"""Node maintenance: what a drain would meet, and what stands in its way."""
