"""What the environments of both engines share."""
