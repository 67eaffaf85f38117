"""Fluid sweeps compared with the packet engine: pages, plots and calibration."""
