"""Virtual machine instance replica sets."""
