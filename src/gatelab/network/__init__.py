"""Models as graphs of operations, and fully connected networks as chains of layers."""
