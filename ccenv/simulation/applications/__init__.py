"""Applications with a quality of experience: a page, a video, a call. They decide what the flows of a scenario send, and when."""
