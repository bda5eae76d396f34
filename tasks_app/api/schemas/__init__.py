"""What goes in and comes out: every field with its meaning. The words are those of `--json`."""
