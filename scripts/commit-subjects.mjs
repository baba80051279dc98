// Checks the subjects of commits: `area: imperative`, at most 72 characters. The areas are listed in CONTRIBUTING.md.
// Usage: node scripts/commit-subjects.mjs   (in the repository; needs no installed package)
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import process from 'node:process'

const MAX_LENGTH = 72

/** Commits before the one that added this file do not follow the rules. */
const SCRIPT = 'scripts/commit-subjects.mjs'

/** Verbs that look like another form than the imperative. */
const IMPERATIVES = new Set(
  'alias bias bring embed exceed feed need ping proceed ring seed shed speed string succeed'.split(' '),
)

/** The problems of one subject, as sentences. */
function problemsOf(subject, areas) {
  if (subject.startsWith('Merge ')) return [] // the oldest commit of a shallow clone may be a merge, and not look like one
  const problems = []
  if (subject.length > MAX_LENGTH) problems.push(`has ${subject.length} characters; the maximum is ${MAX_LENGTH}`)
  const [, named, text] = /^([^:]+): (.+)$/.exec(subject) ?? []
  if (text === undefined) return [...problems, 'is not of the form `area: imperative`']
  for (const area of named.split(', ')) if (!areas.has(area)) problems.push(`has the unknown area "${area}"`)
  const [verb] = text.split(' ')
  if (/^\p{Lu}\p{Ll}/u.test(verb)) problems.push('begins with a capital letter after the area')
  if (text.endsWith('.')) problems.push('ends with a full stop')
  if (!IMPERATIVES.has(verb) && /(?:ed|ing|[^su]s)$/.test(verb))
    problems.push(`begins with "${verb}"; use the imperative`)
  return problems
}

/** The areas that CONTRIBUTING.md lists: the words in backticks in the list item "Areas". */
function knownAreas() {
  const [item] = /^- Areas.*(?:\n {2}.*)*/m.exec(readFileSync('CONTRIBUTING.md', 'utf8')) ?? []
  if (item === undefined) throw new Error('CONTRIBUTING.md has no list "- Areas"')
  return new Set([...item.matchAll(/`([^`]+)`/g)].map(([, area]) => area))
}

function git(...options) {
  const { status, stdout, error } = spawnSync('git', options, { encoding: 'utf8', maxBuffer: 2 ** 28 })
  return error === undefined && status === 0 ? stdout.split('\n').filter((line) => line !== '') : undefined
}

/**
 * The commits to check, as `hash subject`: the one that added this script, and all that descend from it, except merges.
 * In a shallow clone the oldest commits appear to add every file, so that they and all later ones are checked.
 */
function commits() {
  const added = git('log', '--diff-filter=A', '--format=%H', '--', SCRIPT)
  if (added === undefined || added.length === 0) return []
  const line = ['--no-merges', '--format=%h %s']
  const later = git('log', ...line, '--ancestry-path', 'HEAD', ...added.map((hash) => `^${hash}`)) ?? []
  return [...later, ...(git('log', ...line, '--no-walk', ...added) ?? [])]
}

const areas = knownAreas()
const all = commits()
const problems = all.flatMap((line) => {
  const [hash, ...words] = line.split(' ')
  return problemsOf(words.join(' '), areas).map((problem) => `${hash} "${words.join(' ')}" ${problem}.`)
})
for (const problem of problems) console.error(problem)
if (problems.length > 0) process.exitCode = 1
else console.log(`commits: ${all.length} subjects checked`)
