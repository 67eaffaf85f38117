"""The board's database, records and exports."""
