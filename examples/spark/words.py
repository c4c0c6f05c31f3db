"""The words of a text, counted by Spark in as many parts as the job has executors; exits with an error unless all are counted."""

import re
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(path: str) -> None:
    spark = SparkSession.builder.getOrCreate()  # the master is in the environment, or what spark-submit says
    cores = spark.sparkContext.defaultParallelism
    lines = Path(path).read_text().splitlines()
    words = spark.sparkContext.parallelize(lines).flatMap(lambda line: re.findall(r"[a-z]+", line.lower()))
    counts = words.map(lambda word: (word, 1)).reduceByKey(lambda one, other: one + other)
    found = dict(counts.collect())
    for word, count in sorted(found.items(), key=lambda each: (-each[1], each[0]))[:3]:
        print(f"{word} {count}", flush=True)
    total = sum(len(re.findall(r"[a-z]+", line.lower())) for line in lines)
    assert sum(found.values()) == total, f"{sum(found.values())} of {total} words were counted"
    print(f"{total} words counted on {cores} cores", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
