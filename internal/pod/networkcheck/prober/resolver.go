package prober

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxAddresses bounds the addresses that a Pod tries. A Service has at most two.
	maxAddresses = 4
	// lookupTimeout limits a lookup, for which a reconciliation waits.
	lookupTimeout = 2 * time.Second
	// addressesAge is how long addresses are used, and failureAge the wait after a failed lookup.
	addressesAge, failureAge = time.Minute, 5 * time.Second
)

// Resolver returns the addresses of the operator's Service. Its methods are safe for concurrent use.
type Resolver struct {
	host   string
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	now    func() time.Time

	mutex     sync.Mutex
	addresses []netip.Addr
	next      time.Time // of the next lookup
}

// NewResolver returns a Resolver for the name of a Service.
func NewResolver(host string) *Resolver {
	return &Resolver{host: host, lookup: net.DefaultResolver.LookupNetIP, now: time.Now}
}

// Addresses returns the sorted addresses; none if unknown. While lookups fail, it returns the last known addresses: the address of a
// Service does not change.
func (r *Resolver) Addresses(ctx context.Context) []netip.Addr {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.now().Before(r.next) {
		return slices.Clone(r.addresses)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := r.lookup(ctx, "ip", r.host)
	if err != nil || len(found) == 0 {
		r.next = r.now().Add(failureAge)
		return slices.Clone(r.addresses)
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	found = slices.Compact(found)
	r.addresses, r.next = found[:min(len(found), maxAddresses)], r.now().Add(addressesAge)
	return slices.Clone(r.addresses)
}
