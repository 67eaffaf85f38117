"""The constructive proofs of [Starvation] as adversaries, which emulate one network by the jitter of another."""
