"""What live runs do with the system: namespaces, devices, sockets, programs in the kernel."""
