// job/values/hash.ts: a short hash of text, to compare texts by: not for secrets.

/** The hash of a text, as 16 hexadecimal digits: FNV-1a over its UTF-16 units, twice with different seeds. */
export function hashOf(text: string): string {
  return half(text, 0x811c9dc5) + half(text, 0x9747b28c)
}

function half(text: string, seed: number): string {
  let hash = seed
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
  // Mixes the bits once more: those of short texts would differ little.
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return ((hash ^ (hash >>> 16)) >>> 0).toString(16).padStart(8, '0')
}
