"""Networks that use few features, run by code that is compiled without the others; results are the same bit for bit."""
