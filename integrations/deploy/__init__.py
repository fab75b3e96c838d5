"""
A service that redeploys itself: hand over, then die; the successor settles (V10, reports R59 to R68).

Nothing is imported here: the detached deployer starts from this package and must be small and quick.
"""
