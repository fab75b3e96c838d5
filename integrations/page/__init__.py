"""The web page: what a person sees, made of what the journal says; it decides nothing and needs no scripts."""
