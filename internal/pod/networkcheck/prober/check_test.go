package prober

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// testTimeout bounds what takes milliseconds on an idle machine.
const testTimeout = 5 * time.Minute

func startServer(t *testing.T) (control, denied uint16) {
	t.Helper()
	control, denied = ports.Reserve(t).Port(), ports.Reserve(t).Port()
	server := &Server{ControlAddress: netip.AddrPortFrom(loopback, control).String(), DeniedAddress: netip.AddrPortFrom(loopback, denied).String()}
	background.Run(t, server.Start)
	return control, denied
}

func listenAnywhere(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

func portOf(l net.Listener) uint16 { return netip.MustParseAddrPort(l.Addr().String()).Port() }

// wantResult runs a check for this time, which it takes only if its result is Unknown.
func wantResult(t *testing.T, want networkcheck.Result, d time.Duration, o Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if o.Addresses == nil {
		o.Addresses = []netip.Addr{loopback}
	}
	require.Equal(t, want, Check(ctx, o))
}

func TestPoliciesAreEnforcedIfOnlyTheControlPortReplies(t *testing.T) {
	control, denied := startServer(t)
	mesh := listenAnywhere(t) // accepts, as the proxy of a service mesh does, and sends nothing
	defer mesh.Close()
	silent, closed := portOf(mesh), ports.Reserve(t).Port()
	others := []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::ffff:127.0.0.3"), loopback} // nothing listens on the first two
	check := func(title string, want networkcheck.Result, control, denied uint16, addresses []netip.Addr) {
		t.Run(title, func(t *testing.T) {
			duration, o := testTimeout, Options{ControlPort: control, DeniedPort: denied, Addresses: addresses}
			if want == networkcheck.NotEnforced {
				o.deniedTimeout = testTimeout
			}
			if want == networkcheck.Unknown {
				duration, o.EnforceTimeout = time.Second, time.Minute
			}
			wantResult(t, want, duration, o)
		})
	}
	check("only the control port", networkcheck.Enforced, control, closed, nil)
	check("both", networkcheck.NotEnforced, control, denied, nil)
	check("neither", networkcheck.Unknown, closed, closed, nil)
	check("only the denied port", networkcheck.Unknown, closed, denied, nil)
	check("the denied port accepts without a greeting", networkcheck.Enforced, control, silent, nil)
	check("the control port accepts without a greeting", networkcheck.Unknown, silent, control, nil)
	check("one of several addresses", networkcheck.Enforced, control, closed, others)
	check("both, of one of several addresses", networkcheck.NotEnforced, control, denied, others)
}

func TestANetworkHasTimeToEnforceThePoliciesOfANewPod(t *testing.T) {
	control, denied := startServer(t)
	// A second listener takes the place of the denied port, and stops to reply during the check.
	late := listenAnywhere(t)
	go func() {
		for {
			connection, err := late.Accept()
			if err != nil {
				return
			}
			greet(connection)
		}
	}()
	time.AfterFunc(200*time.Millisecond, func() { _ = late.Close() })
	wantResult(t, networkcheck.Enforced, testTimeout, Options{ControlPort: control, DeniedPort: portOf(late), EnforceTimeout: testTimeout})
	start := time.Now()
	never := Options{ControlPort: control, DeniedPort: denied, EnforceTimeout: time.Second, deniedTimeout: testTimeout}
	wantResult(t, networkcheck.NotEnforced, testTimeout, never)
	require.True(t, time.Since(start) >= time.Second, "it gave up after %s, before the network had its time", time.Since(start))
}

func TestTheCommandReportsTheResultByItsExitCode(t *testing.T) {
	check := func(name string, args []string, wantExit int, want string, wantErr bool) {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			exit, err := Run(t.Context(), args, &out)
			require.True(t, exit == wantExit && (err != nil) == wantErr && strings.Contains(out.String(), want), "%d, %v, %q", exit, err, &out)
		})
	}
	check("unknown", []string{"--address=127.0.0.9", "--timeout=1ms"}, networkcheck.ExitUnknown, "cannot be reached", false)
	check("report only", []string{"--address=127.0.0.9", "--timeout=1ms", "--report-only"}, 0, "cannot be reached", false)
	check("no address", nil, 1, "", true)
	check("invalid address", []string{"--address=example.com"}, 1, "invalid value", true)
	check("arguments", []string{"--address=127.0.0.9", "x"}, 1, "", true)
}

// An operator that starts or stops refuses connections to the denied port.
func TestARestartOfTheOperatorDoesNotLookLikeAPolicy(t *testing.T) {
	control, denied := ports.Reserve(t).Port(), ports.Reserve(t).Port()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	restarts := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			running, stop := context.WithTimeout(ctx, 10*time.Millisecond)
			server := &Server{ControlAddress: netip.AddrPortFrom(loopback, control).String(), DeniedAddress: netip.AddrPortFrom(loopback, denied).String()}
			err := server.Start(running)
			stop()
			if err != nil && ctx.Err() == nil {
				restarts <- err
				return
			}
		}
		restarts <- nil
	}()
	o := &Options{Addresses: []netip.Addr{loopback}, ControlPort: control, DeniedPort: denied, deniedTimeout: time.Minute}
	results := map[networkcheck.Result]int{}
	poll.Until(t, "50 attempts that reach both ports", func() bool {
		for range 10 {
			results[attempt(ctx, o)]++
		}
		return results[networkcheck.NotEnforced] >= 50
	})
	cancel()
	require.NoError(t, <-restarts)
	require.True(t, results[networkcheck.Enforced] == 0, "results %v, want none that is Enforced (%d)", results, networkcheck.Enforced)
}

// A peer that connects and sends or receives nothing occupies no place for long, and excludes nobody.
func TestIdleConnectionsDoNotExcludeOthers(t *testing.T) {
	control, _ := startServer(t)
	o := Options{ControlPort: control, DeniedPort: ports.Reserve(t).Port()}
	wantResult(t, networkcheck.Enforced, testTimeout, o) // and the server listens
	for range 2 * maxConnections {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", netip.AddrPortFrom(loopback, control).String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = connection.Close() })
	}
	wantResult(t, networkcheck.Enforced, testTimeout, o)
}

func TestTheResolverUsesTheLastAddressesWhileLookupsFail(t *testing.T) {
	now, lookups := time.Unix(0, 0), 0
	answer, failure := []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("10.0.0.1")}, error(nil)
	r := NewResolver("service")
	r.now = func() time.Time { return now }
	r.lookup = func(context.Context, string, string) ([]netip.Addr, error) { lookups++; return answer, failure }
	check := func(name string, after time.Duration, fails error, want []netip.Addr, wantLookups int) {
		now, failure = now.Add(after), fails
		got := r.Addresses(t.Context())
		require.True(t, slices.Equal(got, want) && lookups == wantLookups, "%s: %v after %d lookups", name, got, lookups)
	}
	known := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	check("a failure before the first answer", 0, errors.New("no server"), nil, 1)
	check("at once after that", time.Second, nil, nil, 1)
	check("the first answer", failureAge, nil, known, 2)
	check("while it is new", addressesAge/2, nil, known, 2)
	check("a failure later", addressesAge, errors.New("no server"), known, 3)
}
