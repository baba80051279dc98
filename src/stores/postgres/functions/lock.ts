// stores/postgres/functions/lock.ts: locks the job of a change, if the job has not moved since it was read.
import { movedJob } from './refusals.js'

/**
 * Locks the job of the change `x` into `j`. The fence is part of the condition: a stale change does not lock the row, so
 * that a concurrent claim does not skip the job.
 */
export const lockJob = `
        select * into j from job where id = x->>'id' and fence = (x->>'f')::bigint for update skip locked;
        if not found then
          over := x->>'id';
          select * into j from job where id = over;
          why := case when not found then 'missing' when j.fence = (x->>'f')::bigint then 'busy' else 'fence' end;
          if why = 'fence' then stands := ${movedJob}; end if;
          exit;
        end if;`

/** Milliseconds until the next claim, if another transaction's lock kept a claim from a waiting job. */
export const CLAIM_RETRY = 250
