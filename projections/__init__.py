"""Folds of the log into views; they can be dropped and rebuilt, and decide nothing."""
