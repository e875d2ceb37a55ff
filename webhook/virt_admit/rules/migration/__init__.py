"""Migration limits and migration policies."""
