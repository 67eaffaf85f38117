"""The fluid models' senders, one file each."""
