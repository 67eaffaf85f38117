"""Fluid models of BBRv1, BBRv2, Reno and CUBIC ([BBR-fluid]): simulation, equilibria, stability."""
