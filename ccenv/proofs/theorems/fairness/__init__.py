"""The theorem about any number of flows of ``ever_delay`` (docs/fairness.md): design, tables, queries, verdict."""
