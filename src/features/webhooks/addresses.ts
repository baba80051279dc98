// features/webhooks/addresses.ts: which addresses are public, so that webhooks cannot reach internal services (SSRF).
import { BlockList, isIP } from 'node:net'

/** IPv4 ranges that are not public: IANA's registry of special addresses, and the host agent of a cloud. */
const nonPublicIPv4 = new BlockList()
for (const [net, prefix] of [
  ['0.0.0.0', 8], // this host
  ['10.0.0.0', 8], // private
  ['100.64.0.0', 10], // carrier-grade NAT, and metadata of a cloud
  ['127.0.0.0', 8], // loopback
  ['168.63.129.16', 32], // host agent of a cloud
  ['169.254.0.0', 16], // link-local, and metadata of most clouds
  ['172.16.0.0', 12], // private
  ['192.0.0.0', 24], // protocols
  ['192.0.2.0', 24], // documentation
  ['192.88.99.0', 24], // 6to4 relays
  ['192.168.0.0', 16], // private
  ['198.18.0.0', 15], // benchmarks
  ['198.51.100.0', 24], // documentation
  ['203.0.113.0', 24], // documentation
  ['224.0.0.0', 4], // multicast
  ['240.0.0.0', 4], // reserved, and broadcast
] as const) {
  nonPublicIPv4.addSubnet(net, prefix, 'ipv4')
}

/** Public IPv6. Everything else is not public, including addresses that map or translate to IPv4. */
const globalIPv6 = new BlockList()
globalIPv6.addSubnet('2000::', 3, 'ipv6')

/** Ranges within it that are not public. */
const specialIPv6 = new BlockList()
for (const [net, prefix] of [
  ['2001::', 23], // protocols, including Teredo
  ['2001:db8::', 32], // documentation
  ['2002::', 16], // 6to4
  ['3fff::', 20], // documentation
] as const) {
  specialIPv6.addSubnet(net, prefix, 'ipv6')
}

/** Whether an address is public. */
export function isPublic(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !nonPublicIPv4.check(address, 'ipv4')
    case 6:
      return !address.includes('%') && globalIPv6.check(address, 'ipv6') && !specialIPv6.check(address, 'ipv6')
    default:
      return false
  }
}
