"""What the command ``dpstudies`` does: one function a command, registered in `studies.cli`."""
