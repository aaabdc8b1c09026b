"""Half-space feature learning (halfspace)."""
