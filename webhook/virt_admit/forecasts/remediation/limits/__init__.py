"""When a health check acts on nothing, as too many objects are not healthy."""
