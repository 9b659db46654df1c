package egressproxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
)

const maxAddresses = 4

// Resolver returns the addresses of a host.
type Resolver func(ctx context.Context, host string) ([]netip.Addr, error)

// resolve asks the Pod's DNS servers. The dot at the end excludes the search domains of the Pod, in which other tenants could create
// the name.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip", host+".")
}

// dialer connects to hosts by name, at allowed addresses.
type dialer struct {
	network sessionrunner.Network
	resolve Resolver
}

var errAddress = errors.New("the address is not allowed")

// dial resolves a host and connects to the first of its allowed addresses that accepts. The name is resolved once: the socket
// connects to the checked address.
func (d *dialer) dial(ctx context.Context, host string, port uint16) (*net.TCPConn, error) {
	addresses, err := d.resolve(ctx, host)
	if err != nil {
		return nil, refusalf(http.StatusBadGateway, reasonUnreachable, "%s cannot be resolved", host)
	}
	allowed := addresses[:0:0]
	for _, address := range addresses {
		if d.network.AllowsProxy(address) && len(allowed) < maxAddresses {
			allowed = append(allowed, address)
		}
	}
	if len(allowed) == 0 {
		return nil, refusalf(http.StatusForbidden, reasonAddressNotAllowed, "%s has no public address", host)
	}
	for i, address := range allowed {
		connection, err := d.dialAddress(ctx, netip.AddrPortFrom(address.Unmap(), port), len(allowed)-i)
		if err == nil {
			return connection, nil
		}
	}
	return nil, refusalf(http.StatusBadGateway, reasonUnreachable, "%s does not accept connections", host)
}

// dialAddress connects to an address within its share of the remaining time.
func (d *dialer) dialAddress(ctx context.Context, address netip.AddrPort, remaining int) (*net.TCPConn, error) {
	control := func(_ context.Context, _, destination string, _ syscall.RawConn) error {
		checked, err := netip.ParseAddrPort(destination)
		if err != nil || !d.network.AllowsProxy(checked.Addr()) {
			return errAddress
		}
		return nil
	}
	netDialer := &net.Dialer{ControlContext: control}
	if deadline, limited := ctx.Deadline(); limited {
		netDialer.Timeout = time.Until(deadline) / time.Duration(remaining)
	}
	connection, err := netDialer.DialContext(ctx, "tcp", address.String())
	if err != nil {
		return nil, err
	}
	tcp, is := connection.(*net.TCPConn)
	if !is {
		_ = connection.Close()
		return nil, errAddress
	}
	return tcp, nil
}
