"""Health checks of any kind."""
