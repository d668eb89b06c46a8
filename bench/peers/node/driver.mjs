// The same as bench/peers/driver.py, for peers that run on node.
import { randomBytes } from 'node:crypto'
import { parseArgs } from 'node:util'

const LOT = 5000
const SPREAD = 2654435761n

export async function main (peer) {
  const { positionals: [verb, url], values } = parseArgs({
    allowPositionals: true,
    options: {
      payload: { type: 'string', default: '{}' },
      callers: { type: 'string', default: '64' },
      seconds: { type: 'string', default: '4' },
      'warm-up': { type: 'string', default: '1' },
      count: { type: 'string', default: '20000' }
    }
  })
  const payload = JSON.parse(values.payload)
  const job = key => ({ key, payload })
  const verbs = { prepare, preload, enqueue, work }
  await verbs[verb](peer, url, job, values)
}

async function prepare (peer, url) {
  await peer.prepare(url)
}

async function preload (peer, url, job, { count }) {
  const keys = numbered()
  const lots = Math.ceil(count / LOT)
  for (let lot = 0; lot < lots; lot++) {
    const size = Math.min(LOT, count - lot * LOT)
    await peer.preload(url, Array.from({ length: size }, () => job(keys.next().value)))
  }
}

async function enqueue (peer, url, job, { callers, seconds, 'warm-up': warmUp }) {
  const keys = numbered()
  const { send, close } = await peer.enqueueing(url)
  const one = () => send(job(keys.next().value))
  const warm = await call(one, callers, warmUp)
  const started = performance.now()
  const cpuStarted = process.cpuUsage()
  const taken = await call(one, callers, seconds)
  const report = {
    acked: taken.length,
    total: warm.length + taken.length,
    seconds: (performance.now() - started) / 1000,
    cpu_seconds: cpuSeconds(cpuStarted)
  }
  await close()
  taken.sort((a, b) => a - b)
  say({ ...report, p50_ms: percentile(taken, 0.50), p99_ms: percentile(taken, 0.99) })
}

async function work (peer, url, job, { count }) {
  let left = Number(count)
  let cpuStarted
  const ran = () => {
    if (cpuStarted === undefined) {
      cpuStarted = process.cpuUsage()
      say({ first: Date.now() / 1000 })
    }
    left -= 1
    if (left === 0) say({ last: Date.now() / 1000, cpu_seconds: cpuSeconds(cpuStarted) })
  }
  await peer.work(url, ran)
}

async function call (one, callers, seconds) {
  const end = performance.now() + seconds * 1000
  const taken = []
  const caller = async () => {
    let begun
    while ((begun = performance.now()) < end) {
      await one()
      taken.push(performance.now() - begun)
    }
  }
  await Promise.all(Array.from({ length: Number(callers) }, caller))
  return taken
}

function * numbered () {
  const run = randomBytes(4).toString('hex')
  for (let count = 1n; ; count++) {
    const spread = (count * SPREAD % 4294967296n).toString(16).padStart(8, '0')
    yield `${spread}-${run}-00-${String(count).padStart(9, '0')}`
  }
}

function percentile (sorted, share) {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] : 0
}

function cpuSeconds (started) {
  const { user, system } = process.cpuUsage(started)
  return (user + system) / 1e6
}

function say (what) {
  console.log(JSON.stringify(what))
}
