package prober

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// testTimeout bounds what takes milliseconds on an idle machine.
const testTimeout = 5 * time.Minute

// startServer starts the operator's listeners, and returns their ports.
func startServer(t *testing.T) (control, denied uint16) {
	t.Helper()
	control, denied = ports.Reserve(t).Port(), ports.Reserve(t).Port()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	server := &Server{ControlAddress: netip.AddrPortFrom(loopback, control).String(), DeniedAddress: netip.AddrPortFrom(loopback, denied).String()}
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return control, denied
}

func listenAnywhere(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func portOf(l net.Listener) uint16 { return netip.MustParseAddrPort(l.Addr().String()).Port() }

// check runs a check whose result must not be Unknown.
func check(t *testing.T, o Options) networkcheck.Result {
	t.Helper()
	return checkFor(t, testTimeout, o)
}

// checkFor runs a check that is Unknown until its time ends.
func checkFor(t *testing.T, d time.Duration, o Options) networkcheck.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if o.Addresses == nil {
		o.Addresses = []netip.Addr{loopback}
	}
	return Check(ctx, o)
}

func TestPoliciesAreEnforcedIfOnlyTheControlPortReplies(t *testing.T) {
	control, _ := startServer(t)
	if got := check(t, Options{ControlPort: control, DeniedPort: ports.Reserve(t).Port()}); got != networkcheck.Enforced {
		t.Errorf("got %d, want Enforced", got)
	}
}

func TestPoliciesAreNotEnforcedIfBothPortsReply(t *testing.T) {
	control, denied := startServer(t)
	if got := check(t, Options{ControlPort: control, DeniedPort: denied, deniedTimeout: testTimeout}); got != networkcheck.NotEnforced {
		t.Errorf("got %d, want NotEnforced", got)
	}
}

func TestWithoutAReplyOfTheControlPortTheResultIsUnknown(t *testing.T) {
	_, denied := startServer(t)
	for name, port := range map[string]uint16{"neither replies": ports.Reserve(t).Port(), "only the denied port replies": denied} {
		if got := checkFor(t, time.Second, Options{ControlPort: ports.Reserve(t).Port(), DeniedPort: port, EnforceTimeout: time.Minute}); got != networkcheck.Unknown {
			t.Errorf("%s: got %d, want Unknown", name, got)
		}
	}
}

func TestAConnectionWithoutAGreetingIsNotAReply(t *testing.T) {
	control, _ := startServer(t)
	mesh := listenAnywhere(t) // accepts, as the proxy of a service mesh does, and sends nothing
	defer mesh.Close()
	if got := check(t, Options{ControlPort: control, DeniedPort: portOf(mesh)}); got != networkcheck.Enforced {
		t.Errorf("silent denied port: got %d, want Enforced", got)
	}
	if got := checkFor(t, time.Second, Options{ControlPort: portOf(mesh), DeniedPort: control}); got != networkcheck.Unknown {
		t.Errorf("silent control port: got %d, want Unknown", got)
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
	if got := check(t, Options{ControlPort: control, DeniedPort: portOf(late), EnforceTimeout: testTimeout}); got != networkcheck.Enforced {
		t.Errorf("denied later: got %d, want Enforced", got)
	}
	start := time.Now()
	if got := check(t, Options{ControlPort: control, DeniedPort: denied, EnforceTimeout: time.Second, deniedTimeout: testTimeout}); got != networkcheck.NotEnforced {
		t.Errorf("never denied: got %d, want NotEnforced", got)
	}
	if waited := time.Since(start); waited < time.Second {
		t.Errorf("gave up after %s, before the network had its time", waited)
	}
}

func TestAddressesThatThePodCannotReachDoNotCount(t *testing.T) {
	control, denied := startServer(t)
	addresses := []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::ffff:127.0.0.3"), loopback} // nothing listens on the others
	if got := check(t, Options{Addresses: addresses, ControlPort: control, DeniedPort: ports.Reserve(t).Port()}); got != networkcheck.Enforced {
		t.Errorf("got %d, want Enforced", got)
	}
	if got := check(t, Options{Addresses: addresses, ControlPort: control, DeniedPort: denied, deniedTimeout: testTimeout}); got != networkcheck.NotEnforced {
		t.Errorf("got %d, want NotEnforced", got)
	}
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
			if exit != test.wantExit || (err != nil) != test.wantErr || !strings.Contains(out.String(), test.want) {
				t.Errorf("exit code %d, error %v, output %q; want %d, error: %t, %q", exit, err, &out, test.wantExit, test.wantErr, test.want)
			}
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
	if err := <-restarts; err != nil {
		t.Fatal(err)
	}
	if results[networkcheck.Enforced] > 0 || results[networkcheck.NotEnforced] < 50 {
		t.Errorf("results %v, want 50 that are NotEnforced (%d), and none that is Enforced (%d)", results, networkcheck.NotEnforced, networkcheck.Enforced)
	}
}

// A peer that connects and sends or receives nothing occupies no place for long, and excludes nobody.
func TestIdleConnectionsDoNotExcludeOthers(t *testing.T) {
	control, _ := startServer(t)
	if got := check(t, Options{ControlPort: control, DeniedPort: ports.Reserve(t).Port()}); got != networkcheck.Enforced {
		t.Fatalf("got %d, want Enforced", got) // and the server listens
	}
	for range 2 * maxConnections {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", netip.AddrPortFrom(loopback, control).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
	if got := check(t, Options{ControlPort: control, DeniedPort: ports.Reserve(t).Port()}); got != networkcheck.Enforced {
		t.Errorf("got %d, want Enforced", got)
	}
}
