-- Arguments: run id, body before the key, body after the key, spread factor (see bench/traffic.py).
-- No response() hook: it would make wrk build a table of headers per answer and become the
-- bottleneck. wrk itself counts answers above 399; an unexpected 200 shows as a missing row.

local threads = 0

function setup(thread)
  thread:set("thread_number", threads)
  threads = threads + 1
end

local head, middle, tail, count, spread

function init(args)
  local run, before, after = args[1], args[2], args[3]
  spread = tonumber(args[4])
  count = 0
  local key_length = 8 + 1 + #run + 1 + 2 + 1 + 9
  head = "POST " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port
    .. "\r\nContent-Type: application/json\r\nContent-Length: "
    .. (#before + key_length + #after) .. "\r\n\r\n" .. before
  middle = string.format("-%s-%02d-", run, thread_number)
  tail = after
end

function request()
  count = count + 1
  return head .. string.format("%08x", count * spread % 4294967296) .. middle
    .. string.format("%09d", count) .. tail
end

function done(summary, latency, requests)
  local failed = summary.errors
  local broken = failed.connect + failed.read + failed.write + failed.timeout
  io.write(string.format('{"requests":%d,"acked":%d,"errors":%d,"seconds":%.6f,',
    summary.requests, summary.requests - failed.status, broken + failed.status,
    summary.duration / 1e6))
  io.write(string.format('"p50_ms":%.4f,"p99_ms":%.4f,"longest_ms":%.4f}\n',
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
