"""The demo: a small world of real repositories to drive tasks through."""
