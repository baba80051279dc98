// stores/postgres/functions/lock.ts: how a change locks its job: only if that has not been moved since it was seen.
import { movedJob } from './refusals.js'

/**
 * Locks the job of the change `x` into `j`. The fence is part of the condition: whoever comes too late does not lock the row,
 * so that a claim of the same moment does not pass over it.
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

/** After how many milliseconds to claim again, where somebody else's lock kept a claim from a waiting job. */
export const CLAIM_AGAIN = 250
