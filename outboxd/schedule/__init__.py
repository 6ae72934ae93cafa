"""When jobs are due: cron expressions on the wall clock, and what of it a clock that jumps or stands still leaves."""
