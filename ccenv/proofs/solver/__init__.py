"""Terms, solvers and the store of answers, independent of networks."""
