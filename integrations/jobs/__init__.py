"""The worker: commands that do a stage's work, before its edge with `advance = "job"` is taken."""
