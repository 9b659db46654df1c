package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/yardmaster/yardmaster/test/poll"
)

// fakeAPIServer accepts writes of Leases.
type fakeAPIServer struct {
	status   int
	requests []*http.Request
	leases   []coordinationv1.Lease
	answer   string
}

func (s *fakeAPIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet {
		w.WriteHeader(s.status)
		fmt.Fprint(w, s.answer)
		return
	}
	var lease coordinationv1.Lease
	if err := json.Unmarshal(raw, &lease); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.requests, s.leases = append(s.requests, r), append(s.leases, lease)
	w.WriteHeader(s.status)
	fmt.Fprint(w, "because")
}

// newTestLease returns a client for a Lease on a fake API server, and the directory with the token.
func newTestLease(t *testing.T) (l *leaseClient, server *fakeAPIServer, directory string) {
	t.Helper()
	server = &fakeAPIServer{status: http.StatusOK}
	listening := httptest.NewTLSServer(server)
	t.Cleanup(listening.Close)
	directory = t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listening.Certificate().Raw})
	for name, content := range map[string]string{"token": "one\n", "ca.crt": string(authority)} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(listening.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{
		"AGENTIC_LEASE": "demo", "AGENTIC_NAMESPACE": "a", "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
	}
	l, err = newLeaseClient(func(name string) string { return environment[name] }, "demo-r1-a1", directory)
	if err != nil {
		t.Fatal(err)
	}
	return l, server, directory
}

func TestLeaseRenewalTakesOneRequest(t *testing.T) {
	l, server, _ := newTestLease(t)
	before := time.Now().Truncate(time.Microsecond) // as in a Lease
	l.renewIfDue(t.Context())
	if len(server.requests) != 1 {
		t.Fatalf("%d requests", len(server.requests))
	}
	r := server.requests[0]
	if r.Method != http.MethodPatch || r.URL.Path != "/apis/coordination.k8s.io/v1/namespaces/a/leases/demo" ||
		r.Header.Get("Authorization") != "Bearer one" || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
	}
	spec := server.leases[0].Spec
	if spec.RenewTime == nil || spec.RenewTime.Time.Before(before) || spec.RenewTime.After(time.Now()) || *spec.HolderIdentity != "demo-r1-a1" {
		t.Errorf("Lease %+v", spec)
	}
}

func TestRenewalsReportTheCostOfTheAttempt(t *testing.T) {
	l, server, _ := newTestLease(t)
	l.renewInterval = 0
	l.renewIfDue(t.Context())
	l.cost = new(0.1 + 0.2)
	l.renewIfDue(t.Context())
	if got := server.leases[0].Annotations[costAnnotation]; got != "" {
		t.Errorf("the unknown cost is reported as %q", got)
	}
	if got := server.leases[1].Annotations[costAnnotation]; got != "demo-r1-a1=0.300000" {
		t.Errorf("the cost is reported as %q", got)
	}
}

func TestInterruptedAttemptContinuesItsCost(t *testing.T) {
	tests := map[string]struct {
		status       int
		answer, want string
	}{
		"the first start":            {http.StatusOK, `{"metadata": {}}`, "demo-r1-a1=0.100000"},
		"a further start":            {http.StatusOK, `{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a1=0.200000"}}}`, "demo-r1-a1=0.300000"},
		"a report of other attempts": {http.StatusOK, `{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a0=7"}}}`, "demo-r1-a1=0.100000"},
		"a malformed report":         {http.StatusOK, `{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a1=much"}}}`, "demo-r1-a1=0.100000"},
		"a malformed answer":         {http.StatusOK, `none`, "demo-r1-a1=0.100000"},
		"an error":                   {http.StatusForbidden, `no`, "demo-r1-a1=0.100000"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			l, server, _ := newTestLease(t)
			server.status, server.answer = test.status, test.answer
			l.restoreCost(t.Context())
			a := &agent{lease: l, cost: l.cost}
			if err := a.addCost(t.Context(), "0.1"); err != nil {
				t.Fatal(err)
			}
			l.renewIfDue(t.Context())
			if got := server.leases[0].Annotations[costAnnotation]; got != test.want {
				t.Errorf("the cost is reported as %q, want %q", got, test.want)
			}
		})
	}
}

func TestLeaseIsRenewedAtMostOncePerInterval(t *testing.T) {
	l, server, _ := newTestLease(t)
	for range 5 {
		l.renewIfDue(t.Context())
	}
	if len(server.requests) != 1 {
		t.Errorf("%d requests", len(server.requests))
	}
	l.lastRenewal = l.lastRenewal.Add(-l.renewInterval)
	l.renewIfDue(t.Context())
	if len(server.requests) != 2 {
		t.Errorf("after a while, %d requests", len(server.requests))
	}
}

func TestRotatedTokenIsUsed(t *testing.T) {
	l, server, directory := newTestLease(t)
	l.renewInterval = 0
	l.renewIfDue(t.Context())
	if err := os.WriteFile(filepath.Join(directory, "token"), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.renewIfDue(t.Context())
	if got := server.requests[1].Header.Get("Authorization"); got != "Bearer two" {
		t.Errorf("authorization %q", got)
	}
}

func TestIdleTimeDoesNotRenewTheLease(t *testing.T) {
	for order, want := range map[string]bool{"/sleep 20ms": true, "/idle 20ms": false} {
		t.Run(order, func(t *testing.T) {
			err := poll.UntilNil(t.Context(), func() error {
				l, server, _ := newTestLease(t)
				l.renewInterval = time.Millisecond
				a, _ := newTestAgent(t, nil)
				a.lease = l
				if err := a.executeLine(t.Context(), order); err != nil {
					t.Fatal(err)
				}
				requests := len(server.requests) // the start of a command is an activity too
				switch {
				case requests > 1 && !want:
					t.Errorf("%d requests", requests)
				case requests < 2 && want: // on a busy machine
					return fmt.Errorf("%d requests", requests)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// timingTransport answers each request and records its time.
type timingTransport struct {
	start        time.Time
	requestTimes []time.Duration
}

func (c *timingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requestTimes = append(c.requestTimes, time.Since(c.start))
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func TestWorkRenewsTheLeaseEveryInterval(t *testing.T) {
	l, _, _ := newTestLease(t)
	a, _ := newTestAgent(t, nil)
	a.lease = l
	synctest.Test(t, func(t *testing.T) {
		clock := &timingTransport{start: time.Now()}
		l.client = &http.Client{Transport: clock}
		if err := a.executeLine(t.Context(), "hello"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // in the fake time of the bubble
		if err := a.executeLine(t.Context(), "/sleep 30s"); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}
		if diff := cmp.Diff(want, clock.requestTimes); diff != "" {
			t.Errorf("renewed after (-want +got):\n%s", diff)
		}
	})
}

func TestDoneCommandAnnotatesTheLease(t *testing.T) {
	l, server, _ := newTestLease(t)
	if err := l.markRunFinished(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := server.leases[0].Annotations["yardmaster.dev/run-finished"]; got != "demo-r1-a1" {
		t.Errorf("annotations %v", server.leases[0].Annotations)
	}
}

func TestFailedLeaseRenewalDoesNotStopWork(t *testing.T) {
	l, server, _ := newTestLease(t)
	server.status = http.StatusForbidden
	a, out := newTestAgent(t, nil)
	a.lease = l
	if err := a.executeLine(t.Context(), "one"); err != nil || out.String() != "one\n" {
		t.Errorf("error %v, echoed %q", err, out)
	}
	const want = "the API server returned 403 Forbidden: because"
	if err := l.markRunFinished(t.Context()); err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
}

func TestMissingLeaseConfigurationIsReportedAtStart(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "ca.crt"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for title, row := range map[string]struct{ host, directory string }{
		"the API server's address is missing": {"", directory},
		"the certificate is missing":          {"10.0.0.1", t.TempDir()},
		"the certificate is invalid":          {"10.0.0.1", directory},
	} {
		t.Run(title, func(t *testing.T) {
			environment := map[string]string{"AGENTIC_LEASE": "demo", "KUBERNETES_SERVICE_HOST": row.host, "KUBERNETES_SERVICE_PORT": "443"}
			if _, err := newLeaseClient(func(name string) string { return environment[name] }, "demo-r1-a1", row.directory); err == nil {
				t.Error("the Lease is accepted")
			}
		})
	}
}
