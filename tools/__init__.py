"""Pages and pictures that are made from the code: ``make house``, ``make api``."""
