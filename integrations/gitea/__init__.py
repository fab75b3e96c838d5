"""Gitea and Forgejo: merging, reading, reporting back and hints. A reply is a claim; git decides (PROTOCOL 4.7)."""
