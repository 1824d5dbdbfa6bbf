"""What people ask for, behind the command line and HTTP alike."""
