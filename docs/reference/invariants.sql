-- Views over the event table for an auditor: each is empty on a journal that kept the protocol, and names what did not.
-- Read-only: they are temporary and vanish with the connection. Use a copy, or open the file with mode=ro.
--   sqlite3 'file:journal.db?mode=ro' -init docs/reference/invariants.sql 'SELECT * FROM broken;'

-- I10: a step was recorded as applied twice in one generation.
CREATE TEMP VIEW applied_twice AS
SELECT task, generation, step, count(*) AS times, max(position) AS position
FROM journal_events WHERE kind = 'applied' GROUP BY task, generation, step HAVING count(*) > 1;

-- I4: two terms of ownership carry one epoch.
CREATE TEMP VIEW two_owners AS
SELECT task, epoch, count(*) AS owners, max(position) AS position
FROM journal_events WHERE kind = 'acquired' GROUP BY task, epoch HAVING count(*) > 1;

-- I6: an owner wrote after a later term had begun.
CREATE TEMP VIEW wrote_after_losing AS
SELECT e.task, e.epoch, e.kind, e.position, max(a.epoch) AS epoch_by_then
FROM journal_events e JOIN journal_events a ON a.task = e.task AND a.kind = 'acquired' AND a.version < e.version
WHERE e.kind IN ('intended', 'applied', 'rejected', 'stage_moved', 'parked', 'released')
GROUP BY e.position HAVING max(a.epoch) > e.epoch;

-- I9, E1: an outcome of an attempt that was never intended; what was awaited, or found done by another, has none.
CREATE TEMP VIEW outcome_without_intent AS
SELECT o.task, o.generation, o.step, o.attempt, o.kind, o.position FROM journal_events o
WHERE o.kind IN ('applied', 'rejected') AND o.attempt > 0 AND NOT EXISTS (
    SELECT 1 FROM journal_events i WHERE i.kind = 'intended' AND i.task = o.task AND i.generation = o.generation
    AND i.step = o.step AND i.attempt = o.attempt AND i.position < o.position);

-- I9: one attempt ended twice.
CREATE TEMP VIEW two_outcomes AS
SELECT task, generation, step, attempt, count(*) AS outcomes, max(position) AS position
FROM journal_events WHERE kind IN ('applied', 'rejected', 'settled') AND attempt > 0
GROUP BY task, generation, step, attempt HAVING count(*) > 1;

-- I8: a step was begun while the attempt of another one had no outcome.
CREATE TEMP VIEW two_open_intents AS
SELECT i.task, i.generation, i.step, i.attempt, i.position, o.step AS open_step FROM journal_events i
JOIN journal_events o ON o.kind = 'intended' AND o.task = i.task AND o.generation = i.generation
    AND o.position < i.position AND o.step <> i.step
WHERE i.kind = 'intended' AND NOT EXISTS (
    SELECT 1 FROM journal_events c WHERE c.task = o.task AND c.generation = o.generation AND c.step = o.step
    AND c.kind IN ('applied', 'rejected', 'settled') AND c.position > o.position AND c.position < i.position);

-- I13, I15: merged (or any other effect), says the stage, and no outcome says so: the stage moved forward over an edge
-- although a step of its plan is not closed in this generation.
CREATE TEMP VIEW moved_without_effect AS
SELECT m.task, m.generation, m.position, json_extract(s.value, '$.name') AS step
FROM journal_events m
JOIN journal_events a ON a.kind = 'acquired' AND a.task = m.task AND a.epoch = m.epoch
JOIN json_each(a.body, '$.plan.steps') s
WHERE m.kind = 'stage_moved' AND json_extract(m.body, '$.to_stage') = json_extract(a.body, '$.plan.target')
    AND NOT EXISTS (
        SELECT 1 FROM journal_events c WHERE c.task = m.task AND c.generation = m.generation
        AND c.step = json_extract(s.value, '$.name') AND c.position < m.position
        AND (c.kind = 'applied' OR (c.kind = 'settled' AND json_extract(c.body, '$.applied'))));

-- I17: a task was parked without an alert, so nobody was told.
CREATE TEMP VIEW parked_in_silence AS
SELECT task, epoch, step, position FROM journal_events
WHERE kind = 'parked' AND coalesce(json_extract(body, '$.alert'), '') = '';

-- I15: something was begun after the end.
CREATE TEMP VIEW begun_after_the_end AS
SELECT e.task, e.kind, e.step, e.position FROM journal_events e
JOIN journal_events d ON d.task = e.task AND d.generation = e.generation AND d.position < e.position
    AND (d.kind = 'canceled' OR (d.kind = 'stage_moved' AND json_extract(d.body, '$.final')))
WHERE e.kind IN ('intended', 'acquired');

-- I1, I2: places in the log and in a task have no gaps.
CREATE TEMP VIEW gaps AS
SELECT '' AS task, max(position) AS position FROM journal_events HAVING max(position) <> count(*)
UNION ALL
SELECT task, max(position) FROM journal_events GROUP BY task HAVING max(version) <> count(*);

-- Not wrong, but what to look at first: merged, and not done. Tasks in which something irreversible happened and that
-- have not come to their end.
CREATE TEMP VIEW merged_but_not_done AS
SELECT a.task, a.generation, group_concat(a.step, ', ') AS applied, max(a.position) AS position FROM journal_events a
WHERE a.kind = 'applied' AND a.generation = (SELECT max(generation) FROM journal_events g WHERE g.task = a.task)
    AND EXISTS (SELECT 1 FROM journal_events i WHERE i.kind = 'intended' AND i.task = a.task
        AND i.generation = a.generation AND i.step = a.step AND json_extract(i.body, '$.irreversible'))
    AND NOT EXISTS (SELECT 1 FROM journal_events d WHERE d.task = a.task AND d.generation = a.generation
        AND (d.kind = 'canceled' OR (d.kind = 'stage_moved' AND json_extract(d.body, '$.final'))))
GROUP BY a.task, a.generation;

-- Not wrong either: attempts whose end nobody knows yet.
CREATE TEMP VIEW in_doubt AS
SELECT i.task, i.generation, i.step, i.attempt, i.position, datetime(i.at / 1000000, 'unixepoch') AS since
FROM journal_events i WHERE i.kind = 'intended' AND NOT EXISTS (
    SELECT 1 FROM journal_events o WHERE o.task = i.task AND o.generation = i.generation AND o.step = i.step
    AND o.position > i.position AND (o.kind IN ('applied', 'rejected', 'settled', 'intended')));

CREATE TEMP VIEW broken AS
SELECT 'I10 applied twice' AS rule, task, position FROM applied_twice
UNION ALL SELECT 'I4 two owners', task, position FROM two_owners
UNION ALL SELECT 'I6 wrote after losing', task, position FROM wrote_after_losing
UNION ALL SELECT 'I9 outcome without intent', task, position FROM outcome_without_intent
UNION ALL SELECT 'I9 two outcomes', task, position FROM two_outcomes
UNION ALL SELECT 'I8 two open intents', task, position FROM two_open_intents
UNION ALL SELECT 'I13 moved without effect', task, position FROM moved_without_effect
UNION ALL SELECT 'I17 parked in silence', task, position FROM parked_in_silence
UNION ALL SELECT 'I15 begun after the end', task, position FROM begun_after_the_end
UNION ALL SELECT 'I1 gaps', task, position FROM gaps;
