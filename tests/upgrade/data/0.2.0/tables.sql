CREATE TABLE documents (kind TEXT NOT NULL, key TEXT NOT NULL, url TEXT NOT NULL, body BLOB NOT NULL, fetched_at REAL NOT NULL, status INTEGER, outcome TEXT NOT NULL, etag TEXT, last_modified TEXT, refresh REAL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE validators (url TEXT NOT NULL, representation TEXT NOT NULL, etag TEXT, last_modified TEXT, stored_at REAL NOT NULL, content_type TEXT, PRIMARY KEY (url, representation)) WITHOUT ROWID;
CREATE TABLE sources (url TEXT NOT NULL, last_run_at REAL NOT NULL, outcome TEXT NOT NULL, reason TEXT, counted_from REAL, gave_up_at REAL, revisit REAL, PRIMARY KEY (url)) WITHOUT ROWID;
CREATE TABLE hosts (host TEXT NOT NULL, last_end REAL NOT NULL, interval REAL NOT NULL, not_before REAL, visited_at REAL, taught TEXT, silent_since REAL, under_way INTEGER NOT NULL, PRIMARY KEY (host)) WITHOUT ROWID;
CREATE TABLE deferrals (url TEXT NOT NULL, host TEXT NOT NULL, due REAL NOT NULL, reason TEXT NOT NULL, since REAL, PRIMARY KEY (url)) WITHOUT ROWID;
CREATE TABLE attempts (url TEXT NOT NULL, count INTEGER NOT NULL, last_at REAL NOT NULL, PRIMARY KEY (url)) WITHOUT ROWID;
CREATE TABLE seen_items (canonical_url TEXT NOT NULL, seen_at REAL NOT NULL, PRIMARY KEY (canonical_url)) WITHOUT ROWID;
CREATE TABLE readings (url TEXT NOT NULL, since REAL NOT NULL, declared_at REAL NOT NULL, read INTEGER NOT NULL, reason TEXT, moved_to TEXT, gone_at REAL, revisit REAL, told_at REAL, PRIMARY KEY (url)) WITHOUT ROWID;
CREATE TABLE fleet_epochs (place TEXT NOT NULL, word TEXT NOT NULL, seen_at REAL NOT NULL, PRIMARY KEY (place)) WITHOUT ROWID;
