package runner

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// fakeAPIServer accepts writes of Leases.
type fakeAPIServer struct {
	status   int
	answer   string
	requests []*http.Request
	leases   []coordinationv1.Lease
}

func (s *fakeAPIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	w.WriteHeader(s.status)
	if r.Method == http.MethodGet {
		fmt.Fprint(w, s.answer)
		return
	}
	var lease coordinationv1.Lease
	if err := json.Unmarshal(raw, &lease); err != nil {
		panic(err)
	}
	s.requests, s.leases = append(s.requests, r), append(s.leases, lease)
}

// newTestLease returns a client for a Lease on a fake API server, the directory with the token, and what it logs.
func newTestLease(t *testing.T) (l *lease, server *fakeAPIServer, directory string, logged *[]string) {
	t.Helper()
	server = &fakeAPIServer{status: http.StatusOK, answer: `{"metadata": {}}`}
	listening := httptest.NewTLSServer(server)
	t.Cleanup(listening.Close)
	directory = t.TempDir()
	writeTestFile(t, filepath.Join(directory, "token"), "one\n")
	writeTestFile(t, filepath.Join(directory, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listening.Certificate().Raw})))
	host, port, err := net.SplitHostPort(listening.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{
		"AGENTIC_LEASE": "demo", "AGENTIC_NAMESPACE": "a", "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
	}
	logged = &[]string{}
	l, err = newLease(func(name string) string { return environment[name] }, "demo-r1-a1", directory,
		func(format string, arguments ...any) { *logged = append(*logged, fmt.Sprintf(format, arguments...)) })
	if err != nil {
		t.Fatal(err)
	}
	return l, server, directory, logged
}

func TestLeaseIsRenewedAtTheStart(t *testing.T) {
	l, server, _, logged := newTestLease(t)
	before := time.Now().Truncate(time.Microsecond) // as in a Lease
	l.start(t.Context())
	if len(server.requests) != 1 || len(*logged) > 0 {
		t.Fatalf("%d requests, logged %v", len(server.requests), *logged)
	}
	r, lease := server.requests[0], server.leases[0]
	if r.Method != http.MethodPatch || r.URL.Path != "/apis/coordination.k8s.io/v1/namespaces/a/leases/demo" ||
		r.Header.Get("Authorization") != "Bearer one" || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
	}
	if lease.Spec.RenewTime.Time.Before(before) || lease.Spec.RenewTime.After(time.Now()) || *lease.Spec.HolderIdentity != "demo-r1-a1" || len(lease.Annotations) > 0 {
		t.Errorf("Lease %+v", lease)
	}
}

func TestReplacedTokenIsUsed(t *testing.T) {
	l, server, directory, _ := newTestLease(t)
	l.renew(t.Context())
	writeTestFile(t, filepath.Join(directory, "token"), "two")
	l.renew(t.Context())
	if got := server.requests[1].Header.Get("Authorization"); got != "Bearer two" {
		t.Errorf("authorization %q", got)
	}
}

func TestRenewalsReportTheCostOfTheAttempt(t *testing.T) {
	for title, row := range map[string]struct {
		status       int
		answer, want string
	}{
		"the first start":            {http.StatusOK, `{"metadata": {}}`, "demo-r1-a1=0.300000"},
		"a further start":            {http.StatusOK, `{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a1=0.200000"}}}`, "demo-r1-a1=0.500000"},
		"a report of other attempts": {http.StatusOK, `{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a0=7"}}}`, "demo-r1-a1=0.300000"},
		"a malformed report":         {http.StatusOK, `{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a1=much"}}}`, "demo-r1-a1=0.300000"},
		"a negative report":          {http.StatusOK, `{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a1=-5"}}}`, "demo-r1-a1=0.300000"},
		"an error":                   {http.StatusForbidden, `no`, "demo-r1-a1=0.300000"},
	} {
		t.Run(title, func(t *testing.T) {
			l, server, _, _ := newTestLease(t)
			server.status, server.answer = row.status, row.answer
			l.start(t.Context())
			l.reportActivity(new(0.1 + 0.2))
			l.renew(t.Context())
			if got := server.leases[1].Annotations[costAnnotation]; got != row.want {
				t.Errorf("the cost is reported as %q, want %q", got, row.want)
			}
		})
	}
}

func TestFailedRenewalIsReportedAndTriedAgain(t *testing.T) {
	l, server, _, logged := newTestLease(t)
	server.status = http.StatusForbidden
	l.renew(t.Context())
	server.status = http.StatusOK
	l.renew(t.Context())
	if len(server.requests) != 2 || len(*logged) != 1 || !strings.Contains((*logged)[0], "403 Forbidden") {
		t.Errorf("%d requests, logged %v", len(server.requests), *logged)
	}
}

func TestFinishedRunIsReported(t *testing.T) {
	l, server, _, _ := newTestLease(t)
	l.finishRun(t.Context())
	if got := server.leases[0].Annotations[runFinishedAnnotation]; got != "demo-r1-a1" {
		t.Errorf("annotations %v", server.leases[0].Annotations)
	}
}

// timingTransport answers each request and records its time.
type timingTransport struct {
	start time.Time
	times []time.Duration
}

func (c *timingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.times = append(c.times, time.Since(c.start))
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func TestLeaseIsRenewedForActivityAndNotWhileTheAgentIsIdle(t *testing.T) {
	l, server, _, _ := newTestLease(t)
	server.status = http.StatusTeapot // the client has another transport
	synctest.Test(t, func(t *testing.T) {
		clock := &timingTransport{start: time.Now()}
		l.client.HTTP = &http.Client{Transport: clock}
		l.activity = make(chan struct{}, 1) // of the bubble
		go l.run(t.Context())
		for range 20 { // active for 20 s, in the fake time of the bubble
			l.reportActivity(nil)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute) // idle
		l.reportActivity(nil)
		synctest.Wait()
		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 10*time.Minute + 20*time.Second}
		if diff := cmp.Diff(want, clock.times); diff != "" {
			t.Errorf("renewed after (-want +got):\n%s", diff)
		}
	})
}

func TestMissingLeaseConfigurationIsReportedAtStart(t *testing.T) {
	directory := t.TempDir()
	writeTestFile(t, filepath.Join(directory, "ca.crt"), "nonsense")
	for title, row := range map[string]struct{ host, directory string }{
		"the API server's address is missing": {"", directory},
		"the certificate is missing":          {"10.0.0.1", t.TempDir()},
		"the certificate is invalid":          {"10.0.0.1", directory},
	} {
		environment := map[string]string{"AGENTIC_LEASE": "demo", "KUBERNETES_SERVICE_HOST": row.host, "KUBERNETES_SERVICE_PORT": "443"}
		if _, err := newLease(func(name string) string { return environment[name] }, "j", row.directory, t.Logf); err == nil {
			t.Errorf("%s: the Lease is accepted", title)
		}
	}
}
