import { PgBoss } from 'pg-boss'
import { main } from './driver.mjs'

const CONNECTIONS = 20
const BATCH = 1000

async function started (connectionString) {
  const boss = new PgBoss({ connectionString, max: CONNECTIONS })
  boss.on('error', console.error)
  await boss.start()
  return boss
}

async function withBoss (url, use) {
  const boss = await started(url)
  await use(boss)
  await boss.stop()
}

await main({
  prepare: url => withBoss(url, boss => boss.createQueue('job')),

  preload: (url, jobs) => withBoss(url, boss => boss.insert('job', jobs.map(data => ({ data })))),

  async enqueueing (url) {
    const boss = await started(url)
    return { send: job => boss.send('job', job), close: () => boss.stop() }
  },

  async work (url, ran) {
    const boss = await started(url)
    const options = { batchSize: BATCH, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true }
    await boss.work('job', options, async jobs => jobs.forEach(ran))
  }
})
