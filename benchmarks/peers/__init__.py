"""Other libraries, each in an environment and a process of its own, timed in turn with ours."""
