package bounded

import (
	"net"
	"net/netip"
	"slices"
)

// localNetworks are the networks whose addresses differ in meaning on each host, and the addresses of cloud providers that serve
// credentials to a host.
var localNetworks = parsePrefixes(
	"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32",
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
	"::/128", "::1/128", "fe80::/10", "fec0::/10", "ff00::/8",
	"fd00:ec2::254/128", "fd20:ce::254/128",
)

// embeddings are the networks whose addresses contain an IPv4 address, at an offset in bytes.
var embeddings = []struct {
	network netip.Prefix
	offset  int
}{
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // SIIT
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64 within one network
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
}

func parsePrefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// isDenied reports whether one of the networks contains the address, or an IPv4 address to which a gateway may translate it.
func isDenied(address netip.Addr, networks []netip.Prefix) bool {
	address = address.Unmap().WithZone("")
	forms := []netip.Addr{address}
	for _, e := range embeddings {
		if e.network.Contains(address) {
			bytes := address.As16()
			forms = append(forms, netip.AddrFrom4([4]byte(bytes[e.offset:e.offset+4])))
		}
	}
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return slices.ContainsFunc(forms, n.Contains) })
}

// ownAddresses returns the addresses of this host as networks.
func ownAddresses() []netip.Prefix {
	var own []netip.Prefix
	found, _ := net.InterfaceAddrs() // without them, the other networks are still denied
	for _, address := range found {
		if network, isNetwork := address.(*net.IPNet); isNetwork {
			if ip, valid := netip.AddrFromSlice(network.IP); valid {
				ip = ip.Unmap()
				own = append(own, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	return own
}
