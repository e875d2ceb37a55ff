"""Where certificates are stored."""
