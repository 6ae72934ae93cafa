"""Scheduled jobs as data: jobs and runs, when a job is due, what operators do with them. No role, no thread."""
