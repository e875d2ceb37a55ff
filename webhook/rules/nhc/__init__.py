"""Node health checks."""
