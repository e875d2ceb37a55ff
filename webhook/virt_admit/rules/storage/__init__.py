"""Storage profiles."""
