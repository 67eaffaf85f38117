"""Queue disciplines with more than one queue or with a controller, as functions over a link's record."""
