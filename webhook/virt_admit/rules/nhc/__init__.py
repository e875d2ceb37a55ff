"""NodeHealthCheck of the medik8s operator."""
