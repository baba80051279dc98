// stores/sqlite/file/better-sqlite3.d.ts: declares the optional package, which has no types; driver.ts types what is used.
declare module 'better-sqlite3'
