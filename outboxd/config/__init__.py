"""The configuration: a YAML file becomes frozen settings, or every problem at once."""
