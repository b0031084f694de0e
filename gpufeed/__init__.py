"""gpufeed."""
