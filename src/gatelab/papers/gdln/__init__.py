"""Localisation and gated deep linear networks (gdln)."""
