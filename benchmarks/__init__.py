"""Speed and memory as ratios, each taken in one run against a peer or a bound. ``make bench`` prints the table."""
