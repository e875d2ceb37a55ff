"""Virtual machine pools."""
