"""Functions of the command ``dpstudies``, one per subcommand, registered in `studies.cli`."""
