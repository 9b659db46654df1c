package runner

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yardmaster/yardmaster/test/leasetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// newTestLease returns a client for a Lease on an API server, and what it logs.
func newTestLease(t *testing.T) (l *lease, server *leasetest.Server, logged *[]string) {
	t.Helper()
	server, logged = leasetest.New(t), &[]string{}
	l, err := newLease(server.Getenv, "demo-r1-a1", server.Directory,
		func(format string, arguments ...any) { *logged = append(*logged, fmt.Sprintf(format, arguments...)) })
	require.NoError(t, err)
	return l, server, logged
}

func TestLeaseIsRenewedFromTheStartToTheEnd(t *testing.T) {
	l, server, logged := newTestLease(t)
	before := time.Now().Truncate(time.Microsecond) // as in a Lease
	l.start(t.Context())
	require.True(t, len(server.Requests) == 1 && len(*logged) == 0, "%d requests, logged %v", len(server.Requests), *logged)
	r, lease := server.Requests[0], server.Leases[0]
	require.Equal(t, "PATCH /apis/coordination.k8s.io/v1/namespaces/a/leases/demo", r.Method+" "+r.URL.Path)
	require.Equal(t, "Bearer one, application/merge-patch+json", r.Header.Get("Authorization")+", "+r.Header.Get("Content-Type"))
	require.True(t, !lease.Spec.RenewTime.Time.Before(before) && !lease.Spec.RenewTime.After(time.Now()), "renewed at %v", lease.Spec.RenewTime)
	require.True(t, *lease.Spec.HolderIdentity == "demo-r1-a1" && len(lease.Annotations) == 0, "Lease %+v", lease)
	server.WriteFile("token", "two")
	server.Status = http.StatusForbidden
	l.renew(t.Context())
	require.Equal(t, "Bearer two", server.Requests[1].Header.Get("Authorization"))
	require.True(t, len(*logged) == 1 && strings.Contains((*logged)[0], "403 Forbidden"), "logged %v", *logged)
	server.Status = http.StatusOK
	l.finishRun(t.Context())
	require.True(t, server.Leases[2].Annotations[runFinishedAnnotation] == "demo-r1-a1" && len(*logged) == 1,
		"annotations %v, logged %v", server.Leases[2].Annotations, *logged)
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
			l, server, _ := newTestLease(t)
			server.Status, server.Answer = row.status, row.answer
			l.start(t.Context())
			l.reportActivity(new(0.1 + 0.2))
			l.renew(t.Context())
			require.Equal(t, row.want, server.Leases[1].Annotations[costAnnotation])
		})
	}
}

func TestLeaseIsRenewedForActivityAndNotWhileTheAgentIsIdle(t *testing.T) {
	l, server, _ := newTestLease(t)
	server.Status = http.StatusTeapot // the client has another transport
	synctest.Test(t, func(t *testing.T) {
		clock := leasetest.NewClock()
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
		require.Equal(t, want, clock.Times)
	})
}

func TestAnEndThatCannotBeReportedIsReportedLaterWithoutFurtherActivity(t *testing.T) {
	l, _, logged := newTestLease(t)
	synctest.Test(t, func(t *testing.T) {
		clock := leasetest.NewClock()
		clock.Failures = 3
		l.client.HTTP = &http.Client{Transport: clock}
		l.activity = make(chan struct{}, 1) // of the bubble
		go l.run(t.Context())
		l.finishRun(t.Context())
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.True(t, len(clock.Bodies) == 4 && len(*logged) == 3, "%d requests, logged %v", len(clock.Bodies), *logged)
		require.True(t, strings.Contains(clock.Bodies[0], runFinishedAnnotation), "sent %s", clock.Bodies[0])
		for _, body := range clock.Bodies { // a later time would count as activity
			require.Equal(t, clock.Bodies[0], body)
		}
	})
}
