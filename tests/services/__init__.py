"""How each real server that the tests need is found or started."""
