"""Applications with a quality of experience: page, video, call. They decide what the flows of a scenario send, and when."""
