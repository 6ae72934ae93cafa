"""A small room service that lives by a transactional outbox; README.md tells how."""
