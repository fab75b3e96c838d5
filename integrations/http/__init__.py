"""The service over HTTP: reading for everybody near, writing for whoever has a token; it decides nothing."""
