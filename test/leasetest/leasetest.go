// Package leasetest is an API server with the Lease of a session, as a runner sees it.
package leasetest

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
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/yardmaster/yardmaster/test/require"
)

// Server accepts writes of the Lease.
type Server struct {
	// Status of all responses, and the Answer to requests that read the Lease.
	Status int
	Answer string
	// Requests that wrote the Lease, and the Leases that they wrote.
	Requests []*http.Request
	Leases   []coordinationv1.Lease
	// Directory has the token and the certificate of the API server.
	Directory string

	t       testing.TB
	address string
}

// New starts a server for a session with the token one.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{Status: http.StatusOK, Answer: `{"metadata": {}}`, Directory: t.TempDir(), t: t}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	s.address = server.Listener.Addr().String()
	s.WriteFile("token", "one\n")
	s.WriteFile("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	return s
}

// WriteFile writes a file of the Directory.
func (s *Server) WriteFile(name, content string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.Directory, name), []byte(content), 0o600))
}

// Getenv returns an environment variable of the runner.
func (s *Server) Getenv(name string) string {
	host, port, err := net.SplitHostPort(s.address)
	require.NoError(s.t, err)
	return map[string]string{"AGENTIC_LEASE": "demo", "AGENTIC_NAMESPACE": "a", "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}[name]
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	w.WriteHeader(s.Status)
	if r.Method == http.MethodGet {
		fmt.Fprint(w, s.Answer)
		return
	}
	var lease coordinationv1.Lease
	if err := json.Unmarshal(raw, &lease); err != nil {
		panic(err)
	}
	s.Requests, s.Leases = append(s.Requests, r), append(s.Leases, lease)
	fmt.Fprint(w, "because")
}

// Clock answers each request, and records it.
type Clock struct {
	start time.Time
	// Failures is how many requests are refused at first.
	Failures int
	// Times since the start, and Bodies, of the requests.
	Times  []time.Duration
	Bodies []string
}

// NewClock returns a clock that starts now.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// RoundTrip implements http.RoundTripper.
func (c *Clock) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	c.Times, c.Bodies = append(c.Times, time.Since(c.start)), append(c.Bodies, string(body))
	status := http.StatusOK
	if len(c.Bodies) <= c.Failures {
		status = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, err
}
