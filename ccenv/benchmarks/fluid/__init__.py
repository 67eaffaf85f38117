"""Pages and plots of fluid sweeps, beside the packet engine."""
