"""HyperConverged."""
