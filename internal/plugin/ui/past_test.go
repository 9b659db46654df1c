package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/prometheus"
	"github.com/yardmaster/yardmaster/test/require"
)

// newHistoryServer returns a server for the queue mail whose charts begin with what a Prometheus server answers.
func newHistoryServer(t *testing.T, answer http.HandlerFunc) *testServer {
	t.Helper()
	upstream := httptest.NewServer(answer)
	t.Cleanup(upstream.Close)
	c, err := prometheus.NewClient(upstream.URL)
	require.NoError(t, err)
	s := newTestServer(t, []client.Object{&v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "a"}}})
	s.History = &History{Client: c, Window: 6 * time.Hour}
	return s
}

func TestPageDoesNotWaitForPrometheusAndShowsItsAnswerLater(t *testing.T) {
	release, requests := make(chan struct{}), atomic.Int64{}
	s := newHistoryServer(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		<-release
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"state":"ready"},"values":[[%d,"41"],[%d,"42"]]}]}}`, testTime.Unix()-120, testTime.Unix()-60)
	})
	changed, stop := s.Store.Subscribe()
	defer stop()
	for range 3 {
		if body := s.get("/k/queue/a/mail").Body.String(); !strings.Contains(body, "Reading the history from Prometheus…") {
			t.Errorf("the page shows:\n%s", body)
		}
	}
	close(release)
	<-changed
	if body := s.get("/k/queue/a/mail").Body.String(); !strings.Contains(body, "History of the last 6h0m0s from Prometheus.") || !strings.Contains(body, "largest 42") {
		t.Errorf("the page shows:\n%s", body)
	}
	require.Equal(t, 1, requests.Load())
}

func TestProblemsOfPrometheusAreShown(t *testing.T) {
	s := newHistoryServer(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<b>no</b>", http.StatusBadGateway) })
	changed, stop := s.Store.Subscribe()
	defer stop()
	s.get("/k/queue/a/mail")
	<-changed
	if body := s.get("/k/queue/a/mail").Body.String(); !strings.Contains(body, "The history cannot be read from Prometheus: ") || !strings.Contains(body, "502") || strings.Contains(body, "<b>no") {
		t.Errorf("the page shows:\n%s", body)
	}
}

func TestHistoryIsReadForALimitedNumberOfObjectsAtOnce(t *testing.T) {
	release, running, most := make(chan struct{}), atomic.Int64{}, atomic.Int64{}
	s := newHistoryServer(t, func(http.ResponseWriter, *http.Request) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
	})
	defer close(release)
	entry, _ := s.Store.Get(parseLocation("/k/queue/a/mail", nil).kind, "a", "mail")
	for i := range 2 * maxPasts {
		other := *entry
		other.Name = fmt.Sprintf("mail-%d", i)
		s.past(t.Context(), &other)
	}
	s.pasts.mu.Lock()
	defer s.pasts.mu.Unlock()
	require.True(t, len(s.pasts.objects) <= maxPasts && s.pasts.reads <= maxPastReads, "%d objects, %d requests", len(s.pasts.objects), s.pasts.reads)
}
