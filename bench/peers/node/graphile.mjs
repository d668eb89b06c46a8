import { makeWorkerUtils, run, Logger } from 'graphile-worker'
import { main } from './driver.mjs'

const CONNECTIONS = 20
const CONCURRENCY = 24
const logger = new Logger(() => (level, message) => {
  if (level === 'error') console.error(message)
})

async function withUtils (connectionString, use) {
  const utils = await makeWorkerUtils({ connectionString, maxPoolSize: CONNECTIONS, logger })
  try {
    return await use(utils)
  } finally {
    await utils.release()
  }
}

await main({
  prepare: url => withUtils(url, utils => utils.migrate()),

  preload: (url, jobs) => withUtils(url, utils => utils.addJobs(
    jobs.map(payload => ({ identifier: 'job', payload })))),

  async enqueueing (connectionString) {
    const utils = await makeWorkerUtils({ connectionString, maxPoolSize: CONNECTIONS, logger })
    return { send: job => utils.addJob('job', job), close: () => utils.release() }
  },

  async work (connectionString, ran) {
    const runner = await run({
      preset: {
        worker: {
          connectionString,
          concurrentJobs: CONCURRENCY,
          maxPoolSize: CONCURRENCY + 1,
          localQueue: { size: 500 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0
        }
      },
      logger,
      taskList: { job: async () => ran() }
    })
    await runner.promise
  }
})
