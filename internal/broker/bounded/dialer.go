package bounded

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const dialTimeout = 5 * time.Second

// Options of a Dialer.
type Options struct {
	// AllowLocal allows loopback, link-local and metadata addresses, and the addresses of this host.
	AllowLocal bool
	// Deny are networks to which the Dialer does not connect.
	Deny []netip.Prefix
}

// Dialer opens connections that share a budget of memory.
type Dialer struct {
	denied     []netip.Prefix
	allowLocal bool
	memory     *memory
}

// NewDialer returns a Dialer. It reads the addresses of this host once.
func NewDialer(o Options) *Dialer {
	d := &Dialer{allowLocal: o.AllowLocal, denied: slices.Clone(o.Deny), memory: newMemory()}
	if !o.AllowLocal {
		d.denied = slices.Concat(d.denied, localNetworks, ownAddresses())
	}
	return d
}

var errResolvedAddressDenied = errors.New("the name resolves to an address to which the operator does not connect")

// For returns a function that opens connections for a tenant, which can use only a part of the shared memory.
func (d *Dialer) For(tenant string) broker.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if d.deniesLiteral(address) {
			return nil, broker.ErrAddressDenied
		}
		dialer := net.Dialer{Timeout: dialTimeout, ControlContext: d.checkResolved}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &Conn{Conn: conn, tenant: tenant, memory: d.memory}, nil
	}
}

// deniesLiteral reports whether the address is denied before any name is resolved.
func (d *Dialer) deniesLiteral(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false // dialing it fails
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return isDenied(ip, d.denied)
	}
	// Every resolver resolves these names to the host itself.
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	isLocal := host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost")
	return !d.allowLocal && isLocal
}

// checkResolved checks the address of a socket immediately before it connects, so that a name cannot resolve to another address
// after the check.
func (d *Dialer) checkResolved(_ context.Context, _, address string, _ syscall.RawConn) error {
	if strings.HasPrefix(address, ":") {
		address = netip.IPv4Unspecified().String() + address // an empty host is this host
	}
	resolved, err := netip.ParseAddrPort(address)
	if err != nil || isDenied(resolved.Addr(), d.denied) {
		return errResolvedAddressDenied
	}
	return nil
}
