"""The Lua scripts with which a fleet's workers share hosts and a queue in Redis (R4, D20).

Each script runs as one transaction, by Redis's clock. Times in Redis are Unix seconds of that
clock. A worker sends only durations, for example the seconds of a hold. ``state.records`` declares
the fields of a record. A host has one more: ``by``, the worker that booked it last.

Only ``known`` and ``GREET`` check whether this is still the same Redis, with all its records. The
hash ``epoch`` has these fields:

- ``word``: random. A worker with another word gets no booking until it has written its records
  back (``SharedStore.tend``).
- ``here``: the history of the data when the word was written, which is Redis's ``master_replid``.
  It changes if a primary starts, and if a replica becomes primary. If Redis comes back with older
  data, the word is the same, but the history is not. Then the first worker changes the word.
- ``lost``: the time of the last loss. All hosts count as requested at that time.
- ``calm``: the time until which no host is booked.
- ``form``: the stored form of the records (``state.forms``). ``writer``: the version of this
  package that raised it.
- The other fields are the times at which the latest blocklists were fetched, by their keys.

If you edit ``wait_for``, edit ``throttle.shared_wait``, too: it is the same rule in Python.
"""

from __future__ import annotations

from typing import Final

from scrapy_walsh.state.records import HOSTS

#: The beginning of each script: functions for hosts, and for the queue of a fleet.
LIBRARY: Final = f"""
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local function text(seconds) return string.format('%.6f', seconds) end
local function number(value) return tonumber(value or '0') or 0 end
local function term(value) return math.min(number(value), 3000000000) end
-- Empty where it is no hash: whoever books it meets the error, and sets it aside.
local function record_of(key)
  local found, record = redis.pcall('HGETALL', key), {{}}
  for i = 1, #found, 2 do record[found[i]] = found[i + 1] end
  return record
end
local function keep(key, now)
  local record = record_of(key)
  redis.call('EXPIRE', key, math.ceil({HOSTS.lua_ends} - now))
end
-- The history of the data: another one whenever a primary starts.
local function identity()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
end
-- When records were last lost; nil where this is not the Redis that the worker knew, and while all
-- hosts are left alone.
local function known(key, word, now)
  local epoch = record_of(key)
  if epoch.word ~= word or epoch.here ~= identity() or number(epoch.calm) > now then return nil end
  return number(epoch.lost)
end
-- The record of a host, which counts as requested by somebody when records were lost. Where Redis's
-- clock was put back, its last request counts as now, and its hold begins anew (``HostRecord.at``).
local function host_of(key, lost, now)
  local record = record_of(key)
  local ahead = number(record.last_end) - now
  if ahead > 0 then
    local till = math.max(now, number(record.not_before) - ahead)
    record.last_end, record.not_before = text(now), text(till)
    redis.call('HSET', key, 'last_end', text(now), 'not_before', text(till))
  end
  if lost > number(record.last_end) then record.last_end, record.by = text(lost), '' end
  return record
end
-- The table that is in JSON; an empty one where there is none.
local function table_of(json)
  local readable, found = pcall(cjson.decode, json or '')
  return readable and type(found) == 'table' and found or {{}}
end
-- The interval that a host has taught (D28), of that field.
local function taught(field) return number(table_of(field).interval) end
-- ``Learned.in_force``.
local function in_force(field)
  local learned = table_of(field)
  return number(learned.calm == 0 and learned.before or learned.interval)
end
local function interval_of(record, interval)
  return math.max(interval, number(record.interval), in_force(record.taught))
end
-- Seconds until a worker with this token and interval may send a request to a host.
local function wait_for(record, token, interval, now)
  if not record.last_end then return 0 end
  local own = token ~= '' and record.by == token
  local wait = math.max(0, number(record.not_before) - now)
  if not own then
    local last = math.min(number(record.last_end), now)
    wait = math.max(wait, last + interval_of(record, interval) - now)
  elseif wait < 0.005 then
    wait = 0
  end
  return wait
end
-- The queue: its keys stand before the first script that is about it.
local ready, waiting, size, serial, workers, looked = unpack(KEYS)
local function line(host) return KEYS[1] .. ':line:' .. host end
local function claims(worker) return KEYS[1] .. ':claims:' .. worker end
-- Hosts that go last, as a worker says that had no answer (D13), until a request is claimed.
local lasts = KEYS[1] .. ':last'
local function is_last(host) return redis.call('SISMEMBER', lasts, host) == 1 end
local function stand(host, interval)
  redis.call('ZREM', waiting, host)
  redis.call('ZADD', ready, redis.call('ZCARD', line(host)) * interval, host)
end
local function put_off(host, due)
  redis.call('ZREM', ready, host)
  redis.call('ZADD', waiting, text(due), host)
end
-- Seconds for which workers have been seen at all: no lease ends because Redis was away.
local function time_seen(now)
  local known = redis.call('HMGET', looked, 'at', 'seen')
  local seen = number(known[2]) + math.min(math.max(now - number(known[1]), 0), 2)
  redis.call('HSET', looked, 'at', text(now), 'seen', text(seen))
  return seen
end
-- Put back into the queue what a worker has claimed, but for the claims that it still has.
local function put_back(worker, held, interval)
  for _, arrival in ipairs(redis.call('HKEYS', claims(worker))) do
    if not string.find(held, arrival, 1, true) then
      local claim = redis.call('HGET', claims(worker), arrival)
      local rank, host, request = string.match(claim, '^(%S+) (%S+) (.*)$')
      redis.call('HDEL', claims(worker), arrival)
      redis.call('ZADD', line(host), rank, arrival .. request)
      if not redis.call('ZSCORE', waiting, host) then stand(host, interval) end
    end
  end
end
-- Drop the claims that a worker is done with, and put back those that it does not know of: Redis's
-- answer never reached it. Put back also what workers have claimed whose leases have ended.
local function settle(worker, lease, done, held, interval, now)
  for arrival in string.gmatch(done, '%d+') do
    if redis.call('HDEL', claims(worker), arrival) == 1 then redis.call('DECR', size) end
  end
  put_back(worker, held, interval)
  local seen = time_seen(now)
  redis.call('ZADD', workers, text(seen + lease), worker)
  for _, silent in ipairs(redis.call('ZRANGEBYSCORE', workers, '-inf', '(' .. text(seen))) do
    put_back(silent, '', interval)
    redis.call('ZREM', workers, silent)
  end
end
"""

#: Checks the epoch; a worker runs this first. KEYS: epoch. ARGV: a new word, the worker's word or
#: '', the seconds of calm after a loss, the least seconds of calm for a worker that must write its
#: records back, the worker's stored form, and its version. Returns the word, Redis's time, and the
#: seconds of calm that are left. If the records have a newer form, it returns '', the time, 0, that
#: form, and its version. If they have an older form, they count as lost. So workers with the older
#: form get no booking, and run this script.
GREET: Final = """
local key, new, knew, calm = KEYS[1], ARGV[1], ARGV[2], number(ARGV[3])
if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
local now, epoch, here = clock(), record_of(key), identity()
local form = number(ARGV[5])
if number(epoch.form) > form then
  return {'', text(now), '0', epoch.form, epoch.writer or ''}
end
local risen = number(epoch.form) < form
local same = epoch.word and epoch.here == here and not risen
if risen then redis.call('HSET', key, 'form', form, 'writer', ARGV[6]) end
local till, word = number(epoch.calm), same and epoch.word or new
local missed = knew ~= '' and knew ~= word
if not same then redis.call('HSET', key, 'word', word, 'here', here) end
if (not same and epoch.word) or (missed and not (same and epoch.lost)) then
  till = now + calm
  redis.call('HSET', key, 'lost', text(now), 'calm', text(till))
elseif missed and till > now then
  till = math.max(till, now + number(ARGV[4]))
  redis.call('HSET', key, 'calm', text(till))
end
return {word, text(now), text(math.max(0, till - now))}
"""

#: Books a host. KEYS: host, epoch, and its server or nothing. ARGV: worker, interval, word, and the
#: interval of the server if the operator says so, else 0. Returns the seconds to wait (0 if it is
#: booked, -1 if nothing may be booked now), the time, the previous record of the host, the end of
#: its last request, '-inf' if there was none, and the previous record of the server if its hosts
#: are paced together (T43): then it is booked, too. If a hold has ended, it is deleted.
RESERVE: Final = """
local now = clock()
local lost = known(KEYS[2], ARGV[3], now)
if not lost then return {'-1', text(now), {}, '0', {}} end
local function book(key, interval)
  redis.call('HSET', key, 'last_end', text(now), 'interval', interval, 'under_way', '1',
    'by', ARGV[1])
  redis.call('HDEL', key, 'not_before')
  keep(key, now)
end
local found, record = redis.call('HGETALL', KEYS[1]), host_of(KEYS[1], lost, now)
local wait, last = wait_for(record, ARGV[1], number(ARGV[2]), now), record.last_end or '-inf'
local server, together, least = KEYS[3] and host_of(KEYS[3], lost, now), {}, number(ARGV[4])
-- As ``HostRecord.binds``.
if server and (least > 0 or taught(server.taught) > 0 or number(server.not_before) > now) then
  together = redis.call('HGETALL', KEYS[3])
  wait = math.max(wait, wait_for(server, ARGV[1], least, now))
  if wait <= 0 then book(KEYS[3], ARGV[4]) end
end
if wait > 0 then return {text(wait), text(now), found, last, together} end
book(KEYS[1], ARGV[2])
return {'0', text(now), found, last, together}
"""

#: Writes the end of a request to a host. KEYS: host. ARGV: worker, interval, seconds since that
#: end, seconds of hold that are left, seconds since the last visit of a slow host or '' (D11), the
#: taught interval, and the address or ''. If another worker has booked the host since, ``by``
#: becomes empty, because the other request is under way. Then every worker keeps the spacing, and
#: the longer taught interval stays.
BOOK: Final = """
local now, record, by = clock(), record_of(KEYS[1]), ARGV[1]
local ended = now - number(ARGV[3])
local till = math.max(number(record.not_before), now + number(ARGV[4]))
if record.last_end and record.by ~= by then by = '' end
redis.call('HSET', KEYS[1], 'last_end', text(math.max(number(record.last_end), ended)),
  'interval', ARGV[2], 'under_way', by == '' and '1' or '0', 'by', by)
if till > now then
  redis.call('HSET', KEYS[1], 'not_before', text(till))
else
  redis.call('HDEL', KEYS[1], 'not_before')
end
if ARGV[5] ~= '' then
  local visited = math.max(number(record.visited_at), now - number(ARGV[5]))
  redis.call('HSET', KEYS[1], 'visited_at', text(visited))
end
if by ~= '' or taught(ARGV[6]) >= taught(record.taught) then
  redis.call('HSET', KEYS[1], 'taught', ARGV[6])
  if ARGV[6] == '' then redis.call('HDEL', KEYS[1], 'taught') end
end
if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'address', ARGV[7]) end
keep(KEYS[1], now)
return text(now)
"""

#: Stores a record, unless Redis has a later one, or has lost a later one. KEYS: record, and for a
#: blocklist the epoch. ARGV: seconds to keep it or '' for ever, the field with the time that is
#: compared or '', that time, and names and values of all fields.
#: Two looks at the clock of Redis differ by up to a second (``link.TIMEOUT``). So a record that was
#: read and changed, for example a visit that has failed since, may seem older than it was.
PUT: Final = """
local held = ARGV[2] ~= '' and tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or '')
if held and held > tonumber(ARGV[3]) + 1 then return end
if KEYS[2] then
  local latest = tonumber(redis.call('HGET', KEYS[2], KEYS[1]) or '')
  if latest and latest > tonumber(ARGV[3]) + 1 then return end
  redis.call('HSET', KEYS[2], KEYS[1], ARGV[3])
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
if ARGV[1] ~= '' then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
"""

# -- the queue of a fleet (adapters/redis_queue.py) -------------------------------------------
#
# KEYS of each script: hosts that are due, by work left; hosts that wait, by due time; the number of
# requests; the serial number of arrivals; the workers, by the end of their leases; and the time in
# which workers were seen. Further keys begin with KEYS[1]: the requests of a host, by rank, and
# the claims of a worker, by arrival. A request counts until its worker has finished it.

#: Adds a request. ARGV: host, rank, request, 1 if it comes back, seconds until the worker may send
#: it, interval, and 1 if it comes back and its host goes last. If a request comes back, its claim
#: was not used, so its host need not wait for the interval of that claim.
PUSH: Final = """
local host, wait, now = ARGV[1], number(ARGV[5]), clock()
local arrival = redis.call('INCR', serial)
redis.call('ZADD', line(host), ARGV[2], string.format('%016d', arrival) .. ARGV[3])
redis.call('INCR', size)
if ARGV[4] == '1' and ARGV[7] == '1' then redis.call('SADD', lasts, host) end
local due = redis.call('ZSCORE', waiting, host)
if wait > 0 then
  if ARGV[4] == '1' then due = 0 end
  put_off(host, math.max(number(due), now + wait))
elseif not due then
  stand(host, number(ARGV[6]))
end
"""

#: Renews a worker's lease. ARGV: worker, seconds of its lease, the numbers of its ended claims, the
#: numbers of its current claims, interval.
RENEW: Final = """
settle(ARGV[1], number(ARGV[2]), ARGV[3], ARGV[4], number(ARGV[5]), clock())
"""

#: Claims a request. ARGV: those of RENEW, then the patience, the prefix of all records, the epoch's
#: word and key, and a host or ''. That host is due at once, because its last claim was not used.
#:
#: It takes the due host with the most work left, which must then wait for an interval. Returns the
#: host, the number of the claim, the request, and the records that its worker reads next (name,
#: value, name, value). If no host is due, it returns '', '', the seconds until one may be due (1 if
#: no host waits), and an empty list. If nothing may be claimed, it returns nothing.
#:
#: If a host must wait longer than the patience, its request is given out at once, so that the gate
#: defers it. If no worker of ours wrote an entry, it has no number. If a host is silent (D13, D31),
#: it gets the lowest score, and its requests are given out when no other host waits.
POP: Final = """
local interval, patience, now = number(ARGV[5]), number(ARGV[6]), clock()
settle(ARGV[1], number(ARGV[2]), ARGV[3], ARGV[4], interval, now)
local lost = known(ARGV[9], ARGV[8], now)
if not lost then return false end
if redis.call('ZSCORE', waiting, ARGV[10]) then stand(ARGV[10], interval) end
-- The records that an entry names. Large ones are left out, since the worker may have them already;
-- so is what is not as a worker writes it.
local function ahead(data)
  local found, reads = {}, table_of(string.match(data, '^[^\\n]*')).reads
  for _, name in ipairs(type(reads) == 'table' and reads or {}) do
    local size = redis.pcall('HSTRLEN', name, 'body')
    if type(size) == 'number' and size <= 4096 then
      found[#found + 1], found[#found + 2] = name, redis.call('HGETALL', name)
    end
  end
  return found
end
for _, host in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', text(now), 'LIMIT', 0, 64)) do
  stand(host, interval_of(host_of(ARGV[7] .. 'host:' .. host, lost, now), interval))
end
-- Whether a host waits that does not go last: 64 more are looked at than go last at all.
local function others_wait()
  for _, host in ipairs(redis.call('ZRANGE', waiting, 0, redis.call('SCARD', lasts) + 63)) do
    local silent = host_of(ARGV[7] .. 'host:' .. host, lost, now).silent_since
    if not silent and not is_last(host) then return true end
  end
  return false
end
for _ = 1, 64 do
  local host, work = unpack(redis.call('ZREVRANGE', ready, 0, 0, 'WITHSCORES'))
  if not host then break end
  local record = host_of(ARGV[7] .. 'host:' .. host, lost, now)
  local own = interval_of(record, interval)
  local wait = wait_for(record, '', own, now)
  local last = record.silent_since or is_last(host)
  if last and number(work) > 0 then
    redis.call('ZADD', ready, 0, host)
  elseif last and others_wait() then
    break
  elseif wait > 0 and wait <= patience then
    put_off(host, now + wait)
  else
    local request, rank = unpack(redis.call('ZRANGE', line(host), 0, 0, 'WITHSCORES'))
    local arrival, data = '', request or ''
    redis.call('SREM', lasts, host)
    if request then redis.call('ZREM', line(host), request) end
    if string.match(data, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') then
      arrival, data = string.sub(request, 1, 16), string.sub(request, 17)
      redis.call('HSET', claims(ARGV[1]), arrival, rank .. ' ' .. host .. ' ' .. data)
    end
    if redis.call('ZCARD', line(host)) == 0 then
      redis.call('ZREM', ready, host)
    elseif wait <= patience then
      put_off(host, now + own)
    end
    return {host, arrival, data, ahead(data)}
  end
end
local first = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
return {'', '', first[1] and text(math.max(0, number(first[2]) - now)) or '1', {}}
"""

#: All scripts, in loading order. ``GREET`` is last: if Redis knows it, it knows the others, too.
ALL: Final = (RESERVE, BOOK, PUT, PUSH, RENEW, POP, GREET)
