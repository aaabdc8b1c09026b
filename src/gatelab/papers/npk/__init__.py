"""Neural path features and the neural path kernel (npk)."""
