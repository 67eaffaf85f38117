"""Link rates that vary."""
