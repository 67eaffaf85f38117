"""The constructive proofs of [Starvation] as adversaries: emulate a network by the jitter of another one."""
