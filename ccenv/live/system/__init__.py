"""System interfaces of live runs: namespaces, devices, sockets, and programs in the kernel."""
