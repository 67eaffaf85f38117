"""The packet engine: an event-driven simulation of segments, queues and receivers."""
