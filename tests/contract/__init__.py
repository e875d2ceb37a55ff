"""What goes over the wire: reviews as a real API server sent them, and our exact answers."""
