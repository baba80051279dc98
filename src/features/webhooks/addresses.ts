// features/webhooks/addresses.ts: which addresses are public, so that nobody can have us call what is behind our own walls.
import { BlockList, isIP } from 'node:net'

/** IPv4 that is not for the public: by IANA's registry of special addresses, and the host agent of a cloud. */
const closed = new BlockList()
for (const [net, prefix] of [
  ['0.0.0.0', 8], // this host
  ['10.0.0.0', 8], // private
  ['100.64.0.0', 10], // carriers' NAT, and metadata of a cloud
  ['127.0.0.0', 8], // loopback
  ['168.63.129.16', 32], // host agent of a cloud
  ['169.254.0.0', 16], // link-local, and metadata of most clouds
  ['172.16.0.0', 12], // private
  ['192.0.0.0', 24], // protocols
  ['192.0.2.0', 24], // documentation
  ['192.88.99.0', 24], // relays of 6to4
  ['192.168.0.0', 16], // private
  ['198.18.0.0', 15], // benchmarks
  ['198.51.100.0', 24], // documentation
  ['203.0.113.0', 24], // documentation
  ['224.0.0.0', 4], // multicast
  ['240.0.0.0', 4], // reserved, and broadcast
] as const) {
  closed.addSubnet(net, prefix, 'ipv4')
}

/** IPv6 for the public. All else is not: also what stands for an IPv4 address, mapped or translated. */
const global = new BlockList()
global.addSubnet('2000::', 3, 'ipv6')

/** What is not for the public among that. */
const special = new BlockList()
for (const [net, prefix] of [
  ['2001::', 23], // protocols, Teredo among them
  ['2001:db8::', 32], // documentation
  ['2002::', 16], // 6to4
  ['3fff::', 20], // documentation
] as const) {
  special.addSubnet(net, prefix, 'ipv6')
}

/** Whether an address is one that anybody can call. */
export function isPublic(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !closed.check(address, 'ipv4')
    case 6:
      return !address.includes('%') && global.check(address, 'ipv6') && !special.check(address, 'ipv6')
    default:
      return false
  }
}
