"""Schedules: a registered pipeline that runs at the times of a crontab.

`timetable` knows the times, `machine` says what becomes of each, `rules` checks what people ask for, `schedules` holds the
rows. Which runs there are, and how one is made, is known to another package: ``engine.schedule_engine`` brings the two together.
"""
