"""
An orchestrator as it was before us: FastAPI, one SQLite file, a liveness registry in memory.

`before` is the earlier program, `adopted` is the same one with the bridge, `scenario` is a day in its life that both
can live through, `record` writes down what the earlier one did: that is what "earlier behaviour" means (NFR-2).
"""
