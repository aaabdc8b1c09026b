"""The neural path kernel and its random features."""
