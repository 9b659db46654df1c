package prober

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// testTimeout bounds what takes milliseconds on an idle machine.
const testTimeout = 5 * time.Minute

// startServer starts the operator's listeners, and returns their ports.
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
	for title, row := range map[string]struct {
		want            networkcheck.Result
		control, denied uint16
		addresses       []netip.Addr
	}{
		"only the control port": {networkcheck.Enforced, control, closed, nil},
		"both":                  {networkcheck.NotEnforced, control, denied, nil},
		"neither":               {networkcheck.Unknown, closed, closed, nil},
		"only the denied port":  {networkcheck.Unknown, closed, denied, nil},
		"the denied port accepts without a greeting":  {networkcheck.Enforced, control, silent, nil},
		"the control port accepts without a greeting": {networkcheck.Unknown, silent, control, nil},
		"one of several addresses":                    {networkcheck.Enforced, control, closed, others},
		"both, of one of several addresses":           {networkcheck.NotEnforced, control, denied, others},
	} {
		t.Run(title, func(t *testing.T) {
			duration, o := testTimeout, Options{ControlPort: row.control, DeniedPort: row.denied, Addresses: row.addresses}
			if row.want == networkcheck.NotEnforced {
				o.deniedTimeout = testTimeout
			}
			if row.want == networkcheck.Unknown {
				duration, o.EnforceTimeout = time.Second, time.Minute
			}
			wantResult(t, row.want, duration, o)
		})
	}
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
	for name, test := range map[string]struct {
		args     []string
		wantExit int
		want     string
		wantErr  bool
	}{
		"unknown":         {[]string{"--address=127.0.0.9", "--timeout=1ms"}, networkcheck.ExitUnknown, "cannot be reached", false},
		"report only":     {[]string{"--address=127.0.0.9", "--timeout=1ms", "--report-only"}, 0, "cannot be reached", false},
		"no address":      {nil, 1, "", true},
		"invalid address": {[]string{"--address=example.com"}, 1, "invalid value", true},
		"arguments":       {[]string{"--address=127.0.0.9", "x"}, 1, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			exit, err := Run(t.Context(), test.args, &out)
			require.True(t, exit == test.wantExit && (err != nil) == test.wantErr && strings.Contains(out.String(), test.want),
				"exit code %d, error %v, output %q", exit, err, &out)
		})
	}
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
	for _, step := range []struct {
		name        string
		after       time.Duration
		failure     error
		want        []netip.Addr
		wantLookups int
	}{
		{"a failure before the first answer", 0, errors.New("no server"), nil, 1},
		{"at once after that", time.Second, nil, nil, 1},
		{"the first answer", failureAge, nil, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, 2},
		{"while it is new", addressesAge / 2, nil, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, 2},
		{"a failure later", addressesAge, errors.New("no server"), []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, 3},
	} {
		now, failure = now.Add(step.after), step.failure
		if diff := cmp.Diff(step.want, r.Addresses(t.Context()), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || lookups != step.wantLookups {
			t.Errorf("%s: %d lookups, want %d; addresses (-want +got):\n%s", step.name, lookups, step.wantLookups, diff)
		}
	}
}
