"""PURE. One module per framework: its roles, replica rules, the environment its launcher reads, and its launch plan.

A framework is a value (`framework.Framework`) in the table `catalogue.FRAMEWORKS`; nothing here starts anything.
"""
