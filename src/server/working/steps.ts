// server/working/steps.ts: reads one step of a job, page by page: a job may have many, with large results.
import type { JobRecord, StepResult } from '../../job/job.js'
import type { Store } from '../../store/store.js'

/** The step of that name, if an earlier call has kept it. */
export async function readStep(
  store: Pick<Store, 'details'>,
  { id }: Pick<JobRecord, 'id'>,
  name: string,
): Promise<StepResult | undefined> {
  for (let after: number | undefined; ;) {
    const query = { jobs: [id], parts: ['steps'], ...(after !== undefined && { steps: { after } }) } as const
    const [found] = (await store.details(query)).jobs
    const step = found?.steps.find((each) => each.name === name)
    if (step !== undefined) return step
    after = found?.more?.steps
    if (after === undefined) return undefined
  }
}
