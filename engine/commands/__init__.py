"""The commands of the `strata` program, one a file; `engine.cli` joins them to a command line."""
