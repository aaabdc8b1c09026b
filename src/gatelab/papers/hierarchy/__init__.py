"""Deep and locally connected ReLU networks (hierarchy)."""
