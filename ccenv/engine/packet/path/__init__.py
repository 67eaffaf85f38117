"""What paths do to packets and ACKs beside queueing them: losses in bursts, reordering, a way back of its own."""
