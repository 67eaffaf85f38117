"""The operator's queue: stages of an evaluation, scores, audit."""
