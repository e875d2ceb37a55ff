"""Health checks that watch lost nodes: what they know before, and how the pods go."""
