"""How the libraries of queues are set up, in one place for publishers, bridge and consumers. Nothing is loaded here."""
