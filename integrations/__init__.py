"""Adapters to the world outside, and the two roots that wire everything: the command line and the HTTP app."""
