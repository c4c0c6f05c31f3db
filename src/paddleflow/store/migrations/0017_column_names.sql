-- Columns by the words of docs/internals/vocabulary.md.
alter table queues rename column policy to job_order;  -- who goes first inside, among equal priorities: a word of spec/queue.py: ORDERS
alter table jobs rename column needs to member_sets;   -- JSON [[role, count, cpu, memory, {scalar: amount}], …]: all that the scheduler has to know
