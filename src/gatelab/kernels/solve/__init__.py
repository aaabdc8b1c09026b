"""Ridge regression, eigenvalues and products, block by block."""
