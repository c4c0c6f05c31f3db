"""A pipeline for other engines: as an Argo Workflow (`argo`), as an Airflow DAG file (`airflow`).

`plan` works out what is the same for both: loops become the tasks that they mean, templates become text in which only what
the target decides is left open. What a target cannot express is refused by name, everything at once; what it can do without
(results that are used again, queues of this platform) is left out with a note.
"""
