"""The explorer: the engine's own functions over a simulated world, every interleaving and crash."""
