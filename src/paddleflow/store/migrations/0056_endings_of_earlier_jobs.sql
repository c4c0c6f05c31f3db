-- Jobs that run after others whatever became of those, or only if they failed (`any:` and `failed:` in the field `after`).
alter table job_dependencies add column ending text not null default 'succeeded'; -- how the earlier job must end: succeeded, any or failed
