"""The command line: one file per group of commands. Puts the parts together; turns errors into exit statuses."""
