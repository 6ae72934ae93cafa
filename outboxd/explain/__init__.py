"""What people and programs are told of events: the same for the command line and the admin API."""
