"""TLS security profiles."""
