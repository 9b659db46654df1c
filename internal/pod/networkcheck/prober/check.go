package prober

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
)

const (
	// connectTimeout limits an attempt to reach the control port.
	connectTimeout = 2 * time.Second
	// minDeniedTimeout is the shortest time that the denied port has to reply. deniedTimeoutFactor is this time relative to the
	// control port's reply.
	minDeniedTimeout    = 400 * time.Millisecond
	deniedTimeoutFactor = 10
	// deniedAttempts is how many connections to the denied port are open at the same time, so that a lost packet does not look like a
	// policy.
	deniedAttempts = 3
	// deniedInterval is the pause after a refused connection to the denied port.
	deniedInterval = 50 * time.Millisecond
	retryInterval  = 500 * time.Millisecond
)

// Options of a check.
type Options struct {
	// Addresses of the operator. Addresses that the Pod cannot reach at all, such as IPv6 addresses in a Pod without IPv6, do not
	// count.
	Addresses []netip.Addr
	// ControlPort and DeniedPort are ports of these addresses.
	ControlPort, DeniedPort uint16
	// EnforceTimeout is how long the network may take to enforce the policies of a new Pod.
	EnforceTimeout time.Duration

	// deniedTimeout is a longer minDeniedTimeout, for tests on a busy machine.
	deniedTimeout time.Duration
}

// Check connects to the operator until the result is Enforced, until it was NotEnforced for EnforceTimeout, or until ctx ends. It
// then returns the last result.
func Check(ctx context.Context, o Options) networkcheck.Result {
	enforceDeadline := time.Time{}
	for {
		result := attempt(ctx, &o)
		if result == networkcheck.NotEnforced && enforceDeadline.IsZero() {
			enforceDeadline = time.Now().Add(o.EnforceTimeout)
		}
		if result == networkcheck.Enforced || result == networkcheck.NotEnforced && !time.Now().Before(enforceDeadline) {
			return result
		}
		select {
		case <-ctx.Done():
			return result
		case <-time.After(retryInterval):
		}
	}
}

// attempt checks all addresses at the same time. It returns Enforced only if policies are enforced for each address that has a
// result.
func attempt(ctx context.Context, o *Options) networkcheck.Result {
	results := make(chan networkcheck.Result, len(o.Addresses))
	for _, address := range o.Addresses {
		go func() { results <- attemptAddress(ctx, o, address) }()
	}
	worst := networkcheck.Unknown
	for range o.Addresses {
		worst = max(worst, <-results)
	}
	return worst
}

// attemptAddress connects to both ports of an address at the same time. The denied port must not reply for a while, and the control
// port has to reply before and after this time, because an operator may start or stop meanwhile.
func attemptAddress(ctx context.Context, o *Options, address netip.Addr) networkcheck.Result {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reachedDenied := make(chan struct{}, deniedAttempts)
	for range deniedAttempts {
		go tryUntilGreeted(ctx, address, o.DeniedPort, reachedDenied)
	}
	start := time.Now()
	if !repliesSoon(ctx, address, o.ControlPort) {
		return networkcheck.Unknown
	}
	select {
	case <-reachedDenied:
		return networkcheck.NotEnforced
	case <-time.After(max(minDeniedTimeout, o.deniedTimeout, deniedTimeoutFactor*time.Since(start))):
	}
	if !repliesSoon(ctx, address, o.ControlPort) { // or ctx has ended
		return networkcheck.Unknown
	}
	return networkcheck.Enforced
}

// tryUntilGreeted connects to a port again and again, because an operator that starts may refuse connections.
func tryUntilGreeted(ctx context.Context, address netip.Addr, port uint16, greeted chan<- struct{}) {
	for !isGreeted(ctx, address, port) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(deniedInterval):
		}
	}
	greeted <- struct{}{}
}

// repliesSoon reports whether a port sends the greeting within connectTimeout.
func repliesSoon(ctx context.Context, address netip.Addr, port uint16) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return isGreeted(ctx, address, port)
}

// isGreeted reports whether the operator's greeting arrives from a port.
func isGreeted(ctx context.Context, address netip.Addr, port uint16) bool {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address.String(), strconv.Itoa(int(port))))
	if err != nil {
		return false
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })()
	received := make([]byte, len(greeting))
	_, err = io.ReadFull(connection, received)
	return err == nil && string(received) == greeting
}
