package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/leasetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// newTestLease returns a client for a Lease on an API server.
func newTestLease(t *testing.T) (*leaseClient, *leasetest.Server) {
	t.Helper()
	server := leasetest.New(t)
	l, err := newLeaseClient(server.Getenv, "demo-r1-a1", server.Directory)
	require.NoError(t, err)
	return l, server
}

func TestLeaseIsRenewedFromTheStartToTheEnd(t *testing.T) {
	l, server := newTestLease(t)
	before := time.Now().Truncate(time.Microsecond) // as in a Lease
	l.renewIfDue(t.Context())
	require.True(t, len(server.Requests) == 1, "%d requests", len(server.Requests))
	r := server.Requests[0]
	if r.Method != http.MethodPatch || r.URL.Path != "/apis/coordination.k8s.io/v1/namespaces/a/leases/demo" ||
		r.Header.Get("Authorization") != "Bearer one" || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
	}
	spec := server.Leases[0].Spec
	if len(server.Leases[0].Annotations) > 0 || spec.RenewTime == nil || spec.RenewTime.Time.Before(before) || spec.RenewTime.After(time.Now()) ||
		*spec.HolderIdentity != "demo-r1-a1" {
		t.Errorf("Lease %+v", spec)
	}
	server.WriteFile("token", "two")
	require.NoError(t, l.markRunFinished(t.Context()))
	finished := server.Leases[1].Annotations["yardmaster.dev/run-finished"]
	if token := server.Requests[1].Header.Get("Authorization"); token != "Bearer two" || finished != "demo-r1-a1" {
		t.Errorf("the replaced token is sent as %q, the finished run is %q", token, finished)
	}
	server.Status, l.renewInterval = http.StatusForbidden, 0
	a, out := newTestAgent(t, nil)
	a.lease = l
	if err := a.executeLine(t.Context(), "one"); err != nil || out.String() != "one\n" {
		t.Errorf("error %v, echoed %q", err, out)
	}
	require.ErrorContains(t, l.markRunFinished(t.Context()), "the API server returned 403 Forbidden: because")
}

func TestInterruptedAttemptContinuesItsCost(t *testing.T) {
	for title, row := range map[string]struct{ answer, want string }{
		"the first start":            {`{"metadata": {}}`, "demo-r1-a1=0.100000"},
		"a further start":            {`{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a1=0.200000"}}}`, "demo-r1-a1=0.300000"},
		"a report of other attempts": {`{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a0=7"}}}`, "demo-r1-a1=0.100000"},
		"a malformed report":         {`{"metadata": {"annotations": {"yardmaster.dev/cost-usd": "demo-r1-a1=much"}}}`, "demo-r1-a1=0.100000"},
		"a malformed answer":         {`none`, "demo-r1-a1=0.100000"},
	} {
		t.Run(title, func(t *testing.T) {
			l, server := newTestLease(t)
			server.Answer = row.answer
			l.restoreCost(t.Context())
			a := &agent{lease: l, cost: l.cost}
			require.NoError(t, a.addCost(t.Context(), "0.1"))
			l.renewIfDue(t.Context())
			require.Equal(t, row.want, server.Leases[0].Annotations[costAnnotation])
		})
	}
}
