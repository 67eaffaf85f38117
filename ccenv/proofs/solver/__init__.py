"""Terms, solvers and the store of answers: nothing here knows of networks."""
