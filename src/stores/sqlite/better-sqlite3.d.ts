// stores/sqlite/better-sqlite3.d.ts: the package is optional and has no types of its own: what is used of it is in driver.ts.
declare module 'better-sqlite3'
