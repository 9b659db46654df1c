package sandbox

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// connect gives the node a loopback interface and one with its address. The
// latter is connected to nothing, and there is no default route: connections from a
// Pod to the outside fail immediately.
func (s Sandbox) connect() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("starting the loopback interface: %w", err)
	}
	node, err := s.addInterface()
	if err != nil {
		return err
	}
	// kube-proxy rewrites a Service's address in outgoing packets, which need a route.
	_, services, err := net.ParseCIDR(s.Services)
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: node.Attrs().Index, Dst: services}); err != nil {
		return fmt.Errorf("adding the route to Services: %w", err)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// addInterface uses a pair, since not every kernel has dummy interfaces.
func (s Sandbox) addInterface() (netlink.Link, error) {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0-peer"}
	if err := netlink.LinkAdd(pair); err != nil {
		return nil, fmt.Errorf("adding the node's interface: %w", err)
	}
	address, err := netlink.ParseAddr(s.Address)
	if err != nil {
		return nil, err
	}
	if err := netlink.AddrAdd(pair, address); err != nil {
		return nil, fmt.Errorf("assigning the node's address: %w", err)
	}
	for _, name := range []string{"eth0", "eth0-peer"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("finding the interface %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("starting the interface %s: %w", name, err)
		}
	}
	unreachable := &netlink.Route{Type: unix.RTN_UNREACHABLE, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}
	if err := netlink.RouteAdd(unreachable); err != nil {
		return nil, fmt.Errorf("connecting the pair of interfaces: %w", err)
	}
	return netlink.LinkByName("eth0")
}
